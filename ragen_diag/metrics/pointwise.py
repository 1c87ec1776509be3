"""Which words of one response the input explains: pointwise mutual information, token by token.

Comes in: log-probabilities of one response's tokens under its candidate prompts. Goes out: nats per
token. Knows no words and no averages. P prompts (columns), T tokens.
"""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def pointwise_mi(logp_PT: FloatArray, own: int) -> FloatArray:
    """(T,) how much more likely each token is under the own prompt than under the candidates' mix.

        pmi_t = log p(z_t | x_own, z_<t) - log m(z_t | z_<t)
        m(z_t | z_<t) = sum_p w_p p(z_t | x_p, z_<t),   w_p proportional to p(z_<t | x_p)

    The mixture of RAGEN-2 (arXiv 2604.06268), Sec. 2.3, taken apart by the chain rule: all
    candidates weigh the same before the first token, and then as much as the tokens so far speak
    for them. The sum over tokens is `matched_seq - marginal_seq` of `row_scores`; every sum from
    the first token on is at most the log of the candidates' number. A prompt whose row is -inf
    throughout is no candidate.

    In nats. Positive: driven by the input. Negative: the own prompt explains the token worse than
    the batch. Near 0: a word of the template, or one that follows from the words before it, since
    what an earlier token has told already is not told again. With one candidate all are 0 up to
    rounding.

    Raises:
        ValueError: a shape that is not (P, T), an own prompt that is no candidate, or a row that is
            neither finite nor -inf throughout.

    >>> logp_PT = np.log([[0.5, 0.8, 0.6], [0.5, 0.2, 0.6]])
    >>> np.exp(pointwise_mi(logp_PT, 0)).round(2).tolist()
    [1.0, 1.6, 1.0]
    """
    if logp_PT.ndim != 2 or not 0 <= own < len(logp_PT):
        raise ValueError(f"shapes do not fit: logp_PT {logp_PT.shape}, own {own}")
    candidate_P = np.asarray(np.isfinite(logp_PT).all(axis=1))
    if not candidate_P[own] or not (logp_PT[~candidate_P] == -np.inf).all():
        raise ValueError("a log-probability is not finite")
    so_far_PT = np.cumsum(logp_PT[candidate_P], axis=1)
    mixture_T = np.logaddexp.reduce(so_far_PT, axis=0)
    # Sums over candidates, not means: before the first token each counts 1.
    log_m_T = np.diff(mixture_T, prepend=np.log(candidate_P.sum()))
    pmi_T: FloatArray = logp_PT[own] - log_m_T
    return pmi_T
