"""Whether the scores can be trusted: agreement with the dump's own, and margins against noise.

Comes in: cross-scores, dumped log-probabilities. Goes out: gaps and margins in nats. Knows no
verdicts. R responses, P distinct prompts (columns).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.metric import Metric

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
PER_TOKEN = "nats/token"


@dataclass(frozen=True, kw_only=True)
class RolloutGap:
    """Ours minus the dumped log-probability per token, over the rows that have one."""

    median: Metric
    p99_absolute: float | None


def rollout_gap(
    matched_seq_R: FloatArray, rollout_logp_R: FloatArray, n_tokens_R: IntArray
) -> RolloutGap:
    """Compare with the dump's own log-probabilities, NaN where it has none; nats/token.

    Far from 0 means another checkpoint, template, tokenizer or sampling temperature. The median
    is the headline, as a handful of tokens can make any mean. Undefined when no row has one.

    >>> gap = rollout_gap(np.array([-4.0]), np.array([-5.0]), np.array([10]))
    >>> gap.median.value, gap.p99_absolute
    (0.1, 0.1)
    """
    known_R = np.isfinite(rollout_logp_R)
    if not known_R.any():
        reason = "the dump has no log-probabilities of these tokens"
        return RolloutGap(median=Metric.undefined(reason, unit=PER_TOKEN), p99_absolute=None)
    gap_R = (matched_seq_R - rollout_logp_R)[known_R] / n_tokens_R[known_R]
    median = Metric(value=float(np.median(gap_R)), unit=PER_TOKEN, n=len(gap_R))
    return RolloutGap(median=median, p99_absolute=float(np.quantile(np.abs(gap_R), 0.99)))


def top_two_margin(logp_RP: FloatArray) -> FloatArray:
    """Best minus second-best column of every row, nats per response, >= 0, shape (R,); P >= 2.

    Below the numeric noise the row's best column may be another one.

    >>> top_two_margin(np.array([[-3.0, -1.0, -2.0]]))
    array([1.])
    """
    two_R2 = np.partition(logp_RP, -2, axis=1)[:, -2:]
    margin_R: FloatArray = two_R2[:, 1] - two_R2[:, 0]
    return margin_R


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
