"""A check drawn as a bar: the value, its interval and the threshold on one scale, in per cent of
the bar's width. Knows no HTML."""

from dataclasses import dataclass

from ragen_diag.report.facts import CheckFact
from ragen_diag.report.glossary import term


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """Places on the bar, 0 to 100, with two decimals. The low side is left of `cut` unless
    `low_right`."""

    value: float
    low: float
    high: float
    cut: float
    low_right: bool
    summary: str


def gauge(fact: CheckFact) -> Gauge | None:
    """The gauge of a check; None without a value or a threshold."""
    check = fact.check
    if check.value is None or check.threshold is None:
        return None
    low = check.value if check.low is None else check.low
    high = check.value if check.high is None else check.high
    start = min(0.0, low, check.threshold)
    bounded = check.metric in ("retrieval_skill", "retrieval_accuracy", "top1_share")
    end = 1.0 if bounded else max(2.5 * check.threshold, 1.25 * high, 1e-9)
    end = max(end, high, check.threshold)

    def place(number: float) -> float:
        return round(100 * (number - start) / (end - start), 2)

    return Gauge(
        value=place(check.value),
        low=place(low),
        high=place(high),
        cut=place(check.threshold),
        low_right=term(check.metric).low_above,
        summary=f"{fact.label} {fact.value} {fact.interval}, {fact.rule}: {fact.state}",
    )
