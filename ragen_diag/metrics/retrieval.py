"""Which prompt a response belongs to, guessed from cross-scores (RAGEN-2, Sec. 2.3).

Comes in: log-probabilities of every response under every distinct prompt. Goes out: credit per
response. Knows nothing of averages or intervals. R responses, P distinct prompts (columns).
"""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def retrieval_credit(logp_RP: FloatArray, own_R: IntArray, *, k: int = 1) -> FloatArray:
    """Credit of each response for finding its own prompt among the k best, shape (R,), 0..1.

        clip((k - columns strictly better) / columns tied with the own one, 0, 1)

    Equal columns share, so that a text that fits all prompts alike earns k/P, where an argmax
    would favour column 0. Only exactly equal scores are tied: where float noise breaks the ties of
    a constant text, all its rows have the same best column, and a mean over prompts is k/P still.

    >>> retrieval_credit(np.log([[0.9, 0.1], [0.5, 0.5]]), np.array([0, 1]))
    array([1. , 0.5])
    """
    own_score_R1 = logp_RP[np.arange(len(own_R)), own_R][:, None]
    better_R = (logp_RP > own_score_R1).sum(axis=1)
    tied_R = (logp_RP == own_score_R1).sum(axis=1)
    credit_R: FloatArray = np.clip((k - better_R) / tied_R, 0.0, 1.0)
    return credit_R


def best_columns(logp_RP: FloatArray) -> FloatArray:
    """Share of each column in a row's best score, shape (R, P); rows sum to 1, ties share.

    >>> best_columns(np.log([[0.4, 0.4, 0.2]]))
    array([[0.5, 0.5, 0. ]])
    """
    best_RP = logp_RP == logp_RP.max(axis=1, keepdims=True)
    share_RP: FloatArray = best_RP / best_RP.sum(axis=1, keepdims=True)
    return share_RP
