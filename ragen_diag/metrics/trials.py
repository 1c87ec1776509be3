"""The same few rows scored in several ways: which way fits them best, and how surely.

Comes in: nats per token of each row, or of each token, under every way. Goes out: a comparison.
Knows no verdicts: what is a clear difference is decided elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.agreement import kept_tokens

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FormatTrial:
    """Rows under their own prompts, with the prompts in several formats.

    `logp` is the mean over rows of log p(Z|X) / length, nats per token, by format; the largest is
    the `best`, `used` if none is larger. `gain` is the best's minus the used one's, `error` its
    standard error over rows (None for one row). `looks_stripped` counts the rows whose text is what
    the chat template gives when its special tokens are removed.
    """

    used: str
    best: str
    logp: Mapping[str, float]
    gain: float
    error: float | None
    rows: int
    looks_stripped: int


def format_trial(
    logp_N: Mapping[str, Sequence[float]], used: str, looks_stripped: int = 0
) -> FormatTrial:
    """Compare formats by the nats per token of N >= 1 rows under each.

    >>> format_trial({"raw": [-2.0, -3.0], "stripped": [-1.0, -1.5]}, "raw").gain
    1.25
    """
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in logp_N.items()}
    means = {name: float(values.mean()) for name, values in arrays.items()}
    best = max(means, key=lambda name: (means[name], name == used))
    gain_N = arrays[best] - arrays[used]
    rows = len(gain_N)
    return FormatTrial(
        used=used,
        best=best,
        logp=means,
        gain=float(gain_N.mean()),
        error=float(gain_N.std(ddof=1) / np.sqrt(rows)) if rows > 1 else None,
        rows=rows,
        looks_stripped=looks_stripped,
    )


@dataclass(frozen=True, kw_only=True)
class TemperatureTrial:
    """Dumped log-probs against ours at several temperatures.

    `spread` is the mean |gap| of `metrics.agreement` in nats per token, by temperature; the
    smallest is the `best`.
    """

    used: float
    best: float
    spread: Mapping[float, float]
    rows: int


def temperature_trial(
    gap_N: Mapping[float, FloatArray], used: float, rows: int
) -> TemperatureTrial:
    """Compare temperatures by the gaps of N >= 1 tokens at each.

    >>> trial = temperature_trial({1.0: np.array([0.5, -0.7]), 0.6: np.array([0.1, 0.0])}, 1.0, 1)
    >>> trial.best, trial.spread
    (0.6, {1.0: 0.6, 0.6: 0.05})
    """
    sizes = {temperature: np.abs(gaps) for temperature, gaps in gap_N.items()}
    spread = {name: float(size[kept_tokens(size)].mean()) for name, size in sizes.items()}
    best = min(spread, key=lambda name: (spread[name], name != used))
    return TemperatureTrial(used=used, best=best, spread=spread, rows=rows)
