"""Parts of a reward that cannot teach: constant, saturated, or cancelling each other.

Comes in: the reward and its named components per row. Goes out: one `Component` each, and how much
of the components' in-group variance is left in their sum. N rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

MIN_COVERAGE = 0.5
"""What fewer rows have speaks of a part of the batch, such as one environment; ours."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """Over the `n` rows that have it: smallest and largest value, share of rows at the largest.

    `coverage` is the share of all rows that have it.
    """

    n: int
    low: float
    high: float
    share_at_high: float
    coverage: float = 1.0

    @property
    def sparse(self) -> bool:
        """Whether most rows lack it."""
        return self.coverage < MIN_COVERAGE

    @property
    def constant(self) -> bool:
        """Whether it has one value, and so adds nothing to any advantage."""
        return self.low == self.high


def component_ranges(components_N: Mapping[str, FloatArray]) -> dict[str, Component]:
    """Range of every component with at least one finite value.

    >>> component_ranges({"format": np.array([0.5, 0.5, np.nan])})["format"].constant
    True
    """
    found = {}
    for name, values_N in components_N.items():
        finite = values_N[np.isfinite(values_N)]
        if finite.size:
            low, high = float(finite.min()), float(finite.max())
            at_high = float((finite == high).mean())
            found[name] = Component(
                n=len(finite),
                low=low,
                high=high,
                share_at_high=at_high,
                coverage=len(finite) / len(values_N),
            )
    return found


def variance_kept(
    reward_N: FloatArray, components_N: Mapping[str, FloatArray], group_N: Sequence[str]
) -> float | None:
    """In-group variance of the reward over the sum of its components' in-group variances.

    1 when components are uncorrelated within prompts, near 0 when they cancel (a length penalty
    against a length bonus), above 1 when they agree. None with fewer than two components that
    vary within a prompt, when most rows lack one, or when the reward is not their plain sum.

    >>> parts = {"bonus": np.array([1.0, 0.0]), "cost": np.array([-1.0, 0.0])}
    >>> variance_kept(np.zeros(2), parts, ["a", "a"])
    0.0
    """
    if len(components_N) < 2:
        return None
    values_KN = np.array([reward_N, *components_N.values()])
    known_N = np.isfinite(values_KN).all(axis=0)
    values_KN = values_KN[:, known_N]
    if (
        not known_N.any()
        or known_N.mean() < MIN_COVERAGE
        or not np.allclose(values_KN[1:].sum(axis=0), values_KN[0])
    ):
        return None
    _, group_of_N = np.unique(np.asarray(group_N)[known_N], return_inverse=True)
    n_G = np.bincount(group_of_N)
    mean_KG = np.array([np.bincount(group_of_N, weights=row) / n_G for row in values_KN])
    within_K = ((values_KN - mean_KG[:, group_of_N]) ** 2).mean(axis=1)
    if np.count_nonzero(within_K[1:] > 1e-12) < 2:
        return None
    return float(within_K[0] / within_K[1:].sum())
