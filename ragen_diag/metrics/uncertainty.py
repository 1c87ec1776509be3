"""How far a number can be trusted: a bootstrap over whole prompts and a permutation null.

Comes in: values per response and the prompt each belongs to. Goes out: intervals and p-values.
Knows nothing of what the values mean. The paper and its code have neither (method: ours).

R responses, C prompts that own at least one response (clusters), P candidate prompts (columns),
B = 1 + resamples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, permutations, product
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.metric import Metric

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ENUMERATED_PROMPTS = 6
"""Up to 6! = 720 permutations are all visited; beyond that they are drawn."""
MIN_CLUSTERS = 2
"""One prompt has no spread between prompts to resample."""


@dataclass(frozen=True)
class Bootstrap:
    """Draws of whole prompts with replacement; the candidate columns stay as they are.

    Row 0 of `draws_BC` is the batch itself, every prompt once. A statistic over B therefore holds
    the point estimate at index 0 and its resamples behind it, and what is true of the estimate
    (a difference, a ratio) can be computed once for both.
    """

    cluster_R: IntArray
    weight_R: FloatArray
    """What a response counts in a mean over prompts."""
    n_C: FloatArray
    draws_BC: FloatArray

    def mean_over_prompts(self, values_R: FloatArray) -> FloatArray:
        """Mean of per-prompt means, shape (B,): every prompt of a block weighs the same."""
        sums_B: FloatArray = self.draws_BC @ self._sums(self.weight_R * values_R)
        return sums_B / (self.draws_BC @ self._sums(self.weight_R))

    def mean_over_rows(self, values_R: FloatArray) -> FloatArray:
        """Mean over responses, shape (B,): a prompt weighs by its number of responses."""
        return (self.draws_BC @ self._sums(values_R)) / (self.draws_BC @ self.n_C)

    def std_over_rows(self, values_R: FloatArray) -> FloatArray:
        """Standard deviation over responses (ddof 0), shape (B,).

        Recomputed per resample from each prompt's count, sum and sum of squares.
        """
        # Centred first: sums of squares of values near -500 would lose the small spread.
        centred_R = values_R - values_R.mean()
        rows_B = self.draws_BC @ self.n_C
        mean_B = (self.draws_BC @ self._sums(centred_R)) / rows_B
        square_B = (self.draws_BC @ self._sums(centred_R**2)) / rows_B
        return np.sqrt(np.clip(square_B - mean_B**2, 0.0, None))

    def metric(self, stat_B: FloatArray, *, unit: str = "") -> Metric:
        """The point estimate with its 95 % interval."""
        clusters = len(self.n_C)
        low, high = interval(stat_B, clusters) if clusters >= MIN_CLUSTERS else (None, None)
        return Metric(value=float(stat_B[0]), low=low, high=high, unit=unit, n=len(self.cluster_R))

    def _sums(self, values_R: FloatArray) -> FloatArray:
        sums_C = np.bincount(self.cluster_R, weights=values_R, minlength=len(self.n_C))
        return sums_C.astype(np.float64)


def bootstrap(
    own_R: Sequence[int] | IntArray,
    *,
    block_R: IntArray | None = None,
    cluster_R: IntArray | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Bootstrap:
    """Draw the resamples.

    `own_R` (R,) is the prompt of each response; R >= 1. Prompts without responses take no part.
    `block_R` is the block of each, see `prompt_weights`. `cluster_R` says what is drawn as a
    whole, where prompts have something in common; None: the prompt.

    Raises:
        ValueError: there is no response.

    >>> draws = bootstrap([0, 0, 1], resamples=500)
    >>> values_R = np.array([1.0, 3.0, 4.0])
    >>> float(draws.mean_over_prompts(values_R)[0])
    3.0
    >>> float(draws.mean_over_rows(values_R)[0].round(3))
    2.667
    """
    own_R = np.asarray(own_R, dtype=np.int64)
    if own_R.size == 0:
        raise ValueError("nothing to resample: no response")
    drawn_R = own_R if cluster_R is None else cluster_R
    _, cluster_R, n_C = np.unique(drawn_R, return_inverse=True, return_counts=True)
    clusters = len(n_C)
    rng = np.random.default_rng(seed)
    drawn_BC = rng.multinomial(clusters, np.full(clusters, 1.0 / clusters), size=resamples)
    draws_BC = np.vstack([np.ones(clusters), drawn_BC.astype(np.float64)])
    return Bootstrap(
        cluster_R=cluster_R.astype(np.int64),
        weight_R=prompt_weights(own_R, block_R),
        n_C=n_C.astype(np.float64),
        draws_BC=draws_BC,
    )


def prompt_weights(own_R: IntArray, block_R: IntArray | None = None) -> FloatArray:
    """What a response counts in a mean over prompts, shape (R,), up to a common factor.

    Its part of its prompt: 1/n. Blocks weigh by their number of responses, whatever their number
    of prompts, so that a block of one prompt for each response isn't all that counts.

    >>> prompt_weights(np.array([0, 0, 1, 2]))
    array([0.5, 0.5, 1. , 1. ])
    >>> prompt_weights(np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1])).tolist()
    [0.75, 0.75, 0.75, 0.75]
    """
    _, first_C, prompt_R, n_C = np.unique(
        own_R, return_index=True, return_inverse=True, return_counts=True
    )
    weight_R: FloatArray = 1.0 / n_C[prompt_R]
    if block_R is None:
        return weight_R
    rows_B = np.bincount(block_R) / len(own_R)
    prompts_B = np.bincount(block_R[first_C], minlength=len(rows_B)) / len(n_C)
    return weight_R * rows_B[block_R] / prompts_B[block_R]


def interval(stat_B: FloatArray, clusters: int) -> tuple[float, float]:
    """The 95 % interval of the resamples behind index 0: expanded percentiles.

    A plain percentile interval is too narrow for few prompts (it covers 79 % with 4, 90 % with 8),
    as it lacks both the factor n/(n-1) and the t distribution. The percentiles taken are therefore
    Phi(-+ sqrt(n/(n-1)) t_{0.975, n-1}) with n = `clusters` (Hesterberg 2015, arXiv 1411.5279,
    Sec. 5.3); for many prompts they are the usual 2.5 and 97.5. Without any width where all
    prompts agree exactly, which is then no proof of certainty.
    """
    reach = math.sqrt(clusters / (clusters - 1)) * _t_quantile(clusters - 1)
    tail = NormalDist().cdf(-reach)
    low, high = np.quantile(stat_B[1:], [tail, 1.0 - tail])
    return float(low), float(high)


def _t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t, by its expansion in 1/freedom (Abramowitz and Stegun 26.7.5).

    Within 1 % for 3 degrees of freedom and more; below, the interval reaches to the outermost
    resamples with the exact value as well.
    """
    z = NormalDist().inv_cdf(0.975)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


@dataclass(frozen=True)
class PermutationTest:
    """`p` is the share of label permutations that reach the observed statistic."""

    p: float
    permutations: int
    exact: bool


def permutation_test(
    value_CP: FloatArray,
    own_C: IntArray,
    *,
    block_P: IntArray | None = None,
    weight_C: FloatArray | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> PermutationTest:
    """Is the mean of `value_CP[c, own_C[c]]` larger than labels dealt at random would give?

    `value_CP[c, p]` is prompt c's mean value if its true column were p, so a permutation moves
    whole groups and keeps the dependence between a prompt's responses. Large values mean that
    texts fit their own prompts. With P <= 6 all P! permutations are visited and p >= 1 / P!;
    otherwise p = (1 + number reaching the observed) / (1 + resamples). With `block_P`, the block
    of each column, labels are dealt within blocks alone, and the number of permutations is the
    product over blocks; values outside a prompt's block are not looked at. The mean is weighted by
    `weight_C`, which stays with its prompt.
    """
    clusters, columns = value_CP.shape
    block_P = np.zeros(columns, dtype=np.int64) if block_P is None else block_P
    blocks = [np.flatnonzero(block_P == block) for block in np.unique(block_P)]
    ways = math.prod(math.factorial(len(columns_N)) for columns_N in blocks)
    exact = ways <= math.factorial(ENUMERATED_PROMPTS)
    labels_NP = _all_labels(blocks) if exact else _drawn_labels(blocks, resamples, seed)
    weight_C = np.ones(clusters) if weight_C is None else weight_C
    weight_C = weight_C / weight_C.sum()
    observed = float(value_CP[np.arange(clusters), own_C] @ weight_C)
    null_N = value_CP[np.arange(clusters), labels_NP[:, own_C]] @ weight_C
    # Sums in another order differ in the last digits; equal must count as reached.
    reached = int(np.count_nonzero(null_N >= observed - 1e-12 * (1.0 + abs(observed))))
    total = len(labels_NP)
    p = reached / total if exact else (1 + reached) / (1 + total)
    return PermutationTest(p=p, permutations=total, exact=exact)


def _all_labels(blocks: Sequence[IntArray]) -> IntArray:
    """Every way to deal the columns of each block to each other, (ways, P)."""
    dealt = list(product(*(permutations(columns_N.tolist()) for columns_N in blocks)))
    labels_NP = np.empty((len(dealt), sum(map(len, blocks))), dtype=np.int64)
    labels_NP[:, np.concatenate(blocks)] = [list(chain(*parts)) for parts in dealt]
    return labels_NP


def _drawn_labels(blocks: Sequence[IntArray], resamples: int, seed: int) -> IntArray:
    rng = np.random.default_rng(seed)
    labels_NP = np.empty((resamples, sum(map(len, blocks))), dtype=np.int64)
    for columns_N in blocks:
        labels_NP[:, columns_N] = rng.permuted(np.tile(columns_N, (resamples, 1)), axis=1)
    return labels_NP


def per_prompt_means(values_RP: FloatArray, own_R: IntArray) -> tuple[FloatArray, IntArray]:
    """Mean row of every prompt that owns responses, and those prompts' columns: (C, P), (C,)."""
    own_C, cluster_R, n_C = np.unique(own_R, return_inverse=True, return_counts=True)
    sums_CP = np.zeros((len(own_C), values_RP.shape[1]))
    np.add.at(sums_CP, cluster_R, values_RP)
    return sums_CP / n_C[:, None], own_C
