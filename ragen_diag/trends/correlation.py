"""Two series over the same steps -> their rank correlation, with an interval that knows that
neighbouring steps are alike."""

from dataclasses import dataclass
from math import atanh, sqrt, tanh

import numpy as np

from ragen_diag.trends.ranks import ranks
from ragen_diag.trends.series import BoolArray, FloatArray, IntArray

FEWEST = 6
_Z95 = 1.959964
_FIELLER = 1.06
"""Variance of the z of a rank correlation over that of Pearson's (Fieller et al. 1957)."""


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """Spearman's rho in [-1, 1] over `n` steps, worth `effective_n` independent ones; None with a
    reason."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int
    effective_n: float | None = None
    reason: str | None = None


def rank_correlation(x_S: FloatArray, y_S: FloatArray, segment_S: IntArray) -> Correlation:
    """Spearman's rho of the steps at which both are defined, with a 95 % interval.

    Fisher's z with the effective number of steps of Quenouille (1947) for AR(1) ranks,
    n (1 - r_x r_y) / (1 + r_x r_y), never more than n. Lag-one correlations r are taken within
    segments. Undefined below six steps, for a constant series, and where no more than three
    effective steps are left; the value stands without its interval then.
    """
    both_S = np.isfinite(x_S) & np.isfinite(y_S)
    x, y, segment = x_S[both_S], y_S[both_S], segment_S[both_S]
    n = len(x)
    if n < FEWEST:
        return Correlation(n=n, reason=f"both defined at {n} steps; {FEWEST} are needed")
    x, y = ranks(x), ranks(y)
    x, y = x - x.mean(), y - y.mean()
    if not x.any() or not y.any():
        return Correlation(n=n, reason="one of the two never changes")
    value = float(np.clip((x @ y) / sqrt((x @ x) * (y @ y)), -1.0, 1.0))
    near = np.diff(segment) == 0
    both = max(0.0, _lag_one(x, near) * _lag_one(y, near))
    effective = n * (1 - both) / (1 + both)
    if effective <= 3:
        reason = f"{n} steps are worth {effective:.1f}, too few for an interval"
        return Correlation(value=value, n=n, effective_n=effective, reason=reason)
    z, spread = atanh(np.clip(value, -1 + 1e-12, 1 - 1e-12)), sqrt(_FIELLER / (effective - 3))
    return Correlation(
        value=value,
        low=tanh(z - _Z95 * spread),
        high=tanh(z + _Z95 * spread),
        n=n,
        effective_n=effective,
    )


def _lag_one(x: FloatArray, near: BoolArray) -> float:
    return float(np.clip((x[1:] * x[:-1])[near].sum() / (x @ x), -0.99, 0.99))
