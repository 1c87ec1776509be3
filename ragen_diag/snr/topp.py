"""The filter of RAGEN-2 by its authors' own rule: the groups that hold most of the variance.

Comes in: a variance per group. Goes out: which groups stay. Knows no rewards, texts or files.
G groups, in first-seen order.
"""

import numpy as np
from numpy.typing import NDArray


def keep_top_p(
    variance_G: NDArray[np.float64], top_p: float, *, eps: float = 0.0, include_zero: bool = False
) -> NDArray[np.bool_]:
    """Mask (G,) of the smallest set of groups of largest variance that holds `top_p` of the sum.

    RAGEN-2 (arXiv 2604.06268), Sec. 4, as in the authors' filters for verl and SkyRL: groups in
    descending order of variance, equal ones in first-seen order, are added until their cumulative
    sum reaches top_p * sum - eps. Groups without variance are candidates only with
    `include_zero`. `eps` is in the unit of the variance, so on small variances it may select
    nothing: a target of 0 or less keeps none. Where the sum itself is 0 none is kept, or all with
    `include_zero`; with `top_p` 1 and `include_zero` all are.

    Raises:
        ValueError: top_p outside (0, 1], eps negative, or a variance that is negative or no number.

    >>> keep_top_p(np.array([12.5, 0.5, 0.0]), 0.8).tolist()
    [True, False, False]
    """
    variance_G = np.asarray(variance_G, dtype=np.float64)
    if not 0 < top_p <= 1 or not eps >= 0:
        raise ValueError(f"top_p {top_p} must be in (0, 1] and eps {eps} at least 0")
    if not (np.isfinite(variance_G) & (variance_G >= 0)).all():
        raise ValueError("variances must be finite and at least 0")
    kept_G = np.zeros(len(variance_G), dtype=np.bool_)
    order = np.argsort(-variance_G, kind="stable")
    sums = np.cumsum(variance_G[order])
    if not len(sums) or sums[-1] <= 0 or (top_p == 1 and include_zero):
        return kept_G | include_zero
    # Against the sum in the same order of adding, or rounding could leave the target out of reach.
    target = top_p * sums[-1] - eps
    if target <= 0:
        return kept_G
    candidates = order if include_zero else order[variance_G[order] > 0]
    kept_G[candidates[: np.searchsorted(sums, target) + 1]] = True
    return kept_G
