"""Whether the scores can be trusted: agreement with the dump's own, and margins against noise.

Comes in: cross-scores, dumped log-probabilities. Goes out: gaps and margins in nats. Knows no
verdicts. R responses, P distinct prompts (columns).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.metric import Metric

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
PER_TOKEN = "nats/token"


EXTREME = 1.0
"""|gap| in nats above which a token's gap is extreme: no rounding makes it (bfloat16 makes up to
0.13), and a ratio of e is far outside every trainer's clip range."""
TRIMMED = 0.01
"""Share of the tokens, those of the largest |gap|, that the headline leaves out."""
TOP = 0.001
"""Share of the tokens, those of the largest |gap|, of which it is said how much they carry."""
UNLIKELY = -0.05
"""Ours in nats, below which a dumped log-prob of exactly 0 is no rounding of a certain token."""


ROUNDED = 0.01
"""Rounding can lift a log-probability so far above 0, in nats."""


@dataclass(frozen=True, kw_only=True)
class RolloutGap:
    """Ours minus the dumped log-probability, token by token; gaps in nats per token.

    `bias` and `spread` are the mean gap and the mean |gap| of all tokens but the TRIMMED share of
    the largest |gap|: a handful of tokens can make any plain mean. `mean`, `median_absolute`,
    `p99_absolute` are of all tokens, `extremes` counts those above EXTREME, `top_share` is what the
    TOP share of tokens (at least one) has of the summed |gap|, 0..1. All of tokens with a finite
    dumped value; `infinite` counts those of -inf, `zeros` those of exactly 0 where ours is below
    UNLIKELY, `positive` those above 0 by more than
    ROUNDED, which no log-probability is. `largest` is the row and the
    token of the largest |gap|, and the gap.
    """

    bias: Metric
    spread: float | None = None
    mean: float | None = None
    median_absolute: float | None = None
    p99_absolute: float | None = None
    extremes: int = 0
    top_share: float | None = None
    tokens: int = 0
    rows: int = 0
    infinite: int = 0
    zeros: int = 0
    positive: int = 0
    largest: tuple[int, int, float] | None = None


def rollout_gap(own_R: Sequence[FloatArray], dumped_R: Sequence[FloatArray | None]) -> RolloutGap:
    """Compare with the dump's own log-probabilities, (T_r,) nats each.

    NaN where a token has none, None where a row has none. Far from 0 means another checkpoint,
    template, tokenizer or sampling temperature. Undefined when no token has one.

    >>> gap = rollout_gap([np.array([-1.0, -2.0])], [np.array([-1.1, -2.1])])
    >>> round(gap.bias.value, 9), round(gap.p99_absolute, 9), gap.tokens
    (0.1, 0.1, 2)
    """
    pairs = [(r, own, dumped_R[r]) for r, own in enumerate(own_R)]
    known = [(r, own_T, dumped_T) for r, own_T, dumped_T in pairs if dumped_T is not None]
    if not known:
        return _undefined()
    own_N = np.concatenate([own_T for _, own_T, _ in known])
    dumped_N = np.concatenate([dumped_T for _, _, dumped_T in known])
    row_N = np.concatenate([np.full(len(own_T), r) for r, own_T, _ in known])
    token_N = np.concatenate([np.arange(len(own_T)) for _, own_T, _ in known])
    finite_N = np.isfinite(dumped_N)
    infinite = int(np.isneginf(dumped_N).sum())
    if not finite_N.any():
        return replace(_undefined(), infinite=infinite)
    gap_N = (own_N - dumped_N)[finite_N]
    size_N = np.abs(gap_N)
    kept_N = kept_tokens(size_N)
    worst = int(size_N.argmax())
    at = int(row_N[finite_N][worst]), int(token_N[finite_N][worst])
    return RolloutGap(
        bias=Metric(value=float(gap_N[kept_N].mean()), unit=PER_TOKEN, n=len(gap_N)),
        spread=float(size_N[kept_N].mean()),
        mean=float(gap_N.mean()),
        median_absolute=float(np.median(size_N)),
        p99_absolute=float(np.quantile(size_N, 0.99)),
        extremes=int((size_N > EXTREME).sum()),
        top_share=_top_share(size_N),
        tokens=len(gap_N),
        rows=len(np.unique(row_N[finite_N])),
        infinite=infinite,
        zeros=int(((dumped_N == 0) & (own_N < UNLIKELY)).sum()),
        positive=int((dumped_N > ROUNDED).sum()),
        largest=(*at, float(gap_N[worst])),
    )


def kept_tokens(size_N: FloatArray) -> IntArray:
    """Places of all tokens but the TRIMMED share, rounded down, of the largest |gap|."""
    kept = len(size_N) - int(TRIMMED * len(size_N))
    return np.argsort(size_N, kind="stable")[:kept]


def _top_share(size_N: FloatArray) -> float | None:
    total = float(size_N.sum())
    most = max(1, int(TOP * len(size_N)))
    return float(np.sort(size_N)[-most:].sum()) / total if total else None


def _undefined() -> RolloutGap:
    reason = "the dump has no log-probabilities of these tokens"
    return RolloutGap(bias=Metric.undefined(reason, unit=PER_TOKEN))


def top_two_margin(logp_RP: FloatArray) -> FloatArray:
    """Best minus second-best column of every row, nats per response, >= 0, shape (R,); P >= 2.

    Below the numeric noise the row's best column may be another one.

    >>> top_two_margin(np.array([[-3.0, -1.0, -2.0]]))
    array([1.])
    """
    two_R2 = np.partition(logp_RP, -2, axis=1)[:, -2:]
    margin_R: FloatArray = two_R2[:, 1] - two_R2[:, 0]
    return margin_R


def share_within_noise(logp_RP: FloatArray, noise_per_response: float) -> float | None:
    """Share of rows whose two best columns differ by less than the noise, 0..1; None with one."""
    if logp_RP.shape[1] < 2:
        return None
    return float((top_two_margin(logp_RP) < noise_per_response).mean())


def own_margin(logp_RP: FloatArray, own_R: IntArray) -> FloatArray:
    """Own column minus the best other one of every row, nats per response, shape (R,); P >= 2.

    Negative where another prompt explains the response better.

    >>> own_margin(np.array([[-3.0, -1.0, -2.0]]), np.array([2]))
    array([-1.])
    """
    rows_R = np.arange(len(own_R))
    others_RP = logp_RP.copy()
    others_RP[rows_R, own_R] = -np.inf
    margin_R: FloatArray = logp_RP[rows_R, own_R] - others_RP.max(axis=1)
    return margin_R
