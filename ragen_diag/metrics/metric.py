"""One measured number with its interval: what every metric of this package returns."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A value, its 95 % interval, and how many observations it rests on.

    `value` is None when the metric is undefined on this batch; `reason` then says why. `low` and
    `high` are None where no interval is defined (exact quantities such as the chance level).
    `reason` may also accompany a defined value that should not be relied on.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    n: int = 0
    reason: str | None = None

    @classmethod
    def undefined(cls, reason: str, *, unit: str = "", n: int = 0) -> "Metric":
        """A metric that this batch does not define."""
        return cls(value=None, unit=unit, n=n, reason=reason)
