"""How likely a response is under its own prompt and under the mixture of its candidates.

Comes in: cross-scores, -inf under the columns that are no candidates. Goes out: values per
response in nats. Knows nothing of averages. R responses, P distinct prompts (columns).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Compat = Literal["none", "ragen"]

BOUND_SLACK = 1e-9


@dataclass(frozen=True)
class Candidates:
    """Columns in blocks: a response's candidates are the columns of its own column's block.

    `n_R` counts them, its own among them; `block_P` numbers the block of every column, in the
    order of the blocks' first columns.
    """

    n_R: IntArray
    block_P: IntArray


def find_candidates(logp_RP: FloatArray, own_R: IntArray) -> Candidates:
    """The blocks, from where scores are finite; all columns are one block where all are.

    Raises:
        ValueError: NaN, +inf, or a -inf where blocks leave none.

    >>> apart_RP = np.array([[-1.0, -2.0, -np.inf], [-np.inf, -np.inf, -3.0]])
    >>> found = find_candidates(apart_RP, np.array([0, 2]))
    >>> found.n_R.tolist(), found.block_P.tolist()
    ([2, 1], [0, 0, 1])
    """
    rows, columns = logp_RP.shape
    known_RP = np.isfinite(logp_RP)
    if known_RP.all():
        return Candidates(np.full(rows, columns), np.zeros(columns, dtype=np.int64))
    # Columns of one block are known to the same rows.
    _, first_B, pattern_P = np.unique(known_RP, axis=1, return_index=True, return_inverse=True)
    block_P = np.argsort(np.argsort(first_B))[pattern_P.reshape(-1)]
    expected_RP = block_P[own_R][:, None] == block_P
    blocks = (known_RP == expected_RP).all() and known_RP.any(axis=0).all()
    if not blocks or not (logp_RP[~known_RP] == -np.inf).all():
        raise ValueError("a log-probability is not finite")
    return Candidates(known_RP.sum(axis=1), block_P)


@dataclass(frozen=True)
class RowScores:
    """Per response: own-prompt and mixture log-likelihood, per token and per response, in nats."""

    candidates: Candidates

    matched_R: FloatArray
    marginal_R: FloatArray
    matched_seq_R: FloatArray
    marginal_seq_R: FloatArray


def row_scores(
    logp_RP: FloatArray, n_tokens_R: IntArray, own_R: IntArray, *, compat: Compat = "none"
) -> RowScores:
    """Matched and marginal log-likelihood of every response (Sec. 2.3, Eq. 1).

        matched_seq  = L[r, own[r]]               matched  = matched_seq / T
        marginal_seq = logsumexp_p L[r] - log P_r marginal = marginal_seq / T

    With compat "ragen", marginal = logsumexp_p (L[r] / T) - log P_r: the public code takes the mean
    over tokens inside the mixture, so that nothing is mixed; the other three are the same.
    A row's gap never exceeds log P_r; with P_r = 1 it is 0.

    Raises:
        ValueError: shapes that do not fit, a score that is not finite where blocks ask for one, a
            row without tokens, an own column that is not there, or a row whose gap exceeds
            log P_r.
    """
    _validate(logp_RP, n_tokens_R, own_R)
    candidates = find_candidates(logp_RP, own_R)
    log_p_R = np.log(candidates.n_R)
    matched_seq_R = logp_RP[np.arange(len(own_R)), own_R]
    marginal_seq_R = _logsumexp(logp_RP) - log_p_R
    if compat == "ragen":
        marginal_R = _logsumexp(logp_RP / n_tokens_R[:, None]) - log_p_R
    else:
        marginal_R = marginal_seq_R / n_tokens_R
    _check_bound(matched_seq_R, marginal_seq_R, log_p_R)
    return RowScores(
        candidates=candidates,
        matched_R=matched_seq_R / n_tokens_R,
        marginal_R=marginal_R,
        matched_seq_R=matched_seq_R,
        marginal_seq_R=marginal_seq_R,
    )


def _validate(logp_RP: FloatArray, n_tokens_R: IntArray, own_R: IntArray) -> None:
    if logp_RP.ndim != 2 or n_tokens_R.shape != own_R.shape or own_R.shape != logp_RP.shape[:1]:
        raise ValueError(
            f"shapes do not fit: logp_RP {logp_RP.shape}, n_tokens_R {n_tokens_R.shape},"
            f" own_R {own_R.shape}"
        )
    if (n_tokens_R < 1).any():
        raise ValueError("a response without scored tokens has no log-probability")
    if own_R.size and not 0 <= own_R.min() <= own_R.max() < logp_RP.shape[1]:
        raise ValueError(f"own_R names a column outside 0..{logp_RP.shape[1] - 1}")


def _logsumexp(logp_RP: FloatArray) -> FloatArray:
    if not logp_RP.size:
        return np.zeros(len(logp_RP))
    best_R = logp_RP.max(axis=1)
    sum_R: FloatArray = best_R + np.log(np.exp(logp_RP - best_R[:, None]).sum(axis=1))
    return sum_R


def _check_bound(
    matched_seq_R: FloatArray, marginal_seq_R: FloatArray, log_p_R: FloatArray
) -> None:
    excess_R = matched_seq_R - marginal_seq_R - log_p_R
    broken_R = excess_R > BOUND_SLACK * (1.0 + np.abs(matched_seq_R))
    if broken_R.any():
        row = int(np.argmax(excess_R))
        raise ValueError(
            f"row {row}: matched exceeds the mixture by more than log P = {log_p_R[row]:.6g}"
        )
