"""Reward differences that success does not explain: phantom variance, and pay by length.

Comes in: rewards, success and lengths per row, with groups. Goes out: counts, shares, and one
correlation per group. Knows no models and no verdicts. N rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.reward_groups import RewardRows

FloatArray = NDArray[np.float64]

DECIMALS = 9
"""Rewards are rounded to these before they are ranked, or float noise would order equal ones."""


@dataclass(frozen=True, kw_only=True)
class PhantomVariance:
    """Groups whose rewards differ although their success does not.

    `groups` are such groups, `failed` those of them without any success, `varying` all groups
    whose rewards differ. `share` is their part of the reward variance within prompts, 0..1.
    """

    groups: int
    failed: int
    varying: int
    share: float


def phantom_variance(rows: RewardRows) -> PhantomVariance | None:
    """Where the reward's variance within prompts stands, as far as success is known.

    A bonus for length in a group that always fails is such variance: it moves the policy, and
    not towards the task. None without a success component, or where no group's rewards differ. A
    group with a row of unknown success is never a phantom.

    >>> rewards, success = np.array([0.1, 0.3, 0.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0])
    >>> found = phantom_variance(RewardRows(reward_N=rewards, group_N=list("aabb"),
    ...                                     success_N=success))
    >>> found.groups, found.failed, found.varying, round(found.share, 3)
    (1, 1, 2, 0.038)
    """
    if rows.success_N is None:
        return None
    groups = failed = varying = 0
    square = total = 0.0
    for members in rows.members().values():
        members = members[np.isfinite(rows.reward_N[members])]
        rewards, success = rows.reward_N[members], rows.success_N[members]
        if not len(members) or rows.flat(rewards):
            continue
        varying += 1
        spread = float(((rewards - rewards.mean()) ** 2).sum())
        total += spread
        if np.isfinite(success).all() and rows.flat(success):
            groups += 1
            failed += bool((success <= 0.0).all())
            square += spread
    if not varying:
        return None
    return PhantomVariance(groups=groups, failed=failed, varying=varying, share=square / total)


def length_correlations(rows: RewardRows, length_N: FloatArray) -> dict[str, float]:
    """Rank correlation (Spearman) of reward and response length in every group where both vary.

    -1..1; 1 where longer always earns more. Ties share their mean rank. Rows without a finite
    reward or length are left out.

    >>> rows = RewardRows(reward_N=np.array([0.0, 1.0, 2.0, 1.0, 1.0]), group_N=list("aaabb"))
    >>> length_correlations(rows, np.array([10.0, 20.0, 30.0, 5.0, 6.0]))
    {'a': 1.0}
    """
    known_N = np.isfinite(rows.reward_N) & np.isfinite(length_N)
    found = {}
    for group, members in rows.members().items():
        members = members[known_N[members]]
        rewards, lengths = rows.reward_N[members], length_N[members]
        if len(members) and not rows.flat(rewards) and np.ptp(lengths) > 0:
            found[group] = _spearman(rewards.round(DECIMALS), lengths)
    return found


def _spearman(first: FloatArray, second: FloatArray) -> float:
    one, two = (ranks - ranks.mean() for ranks in (_ranks(first), _ranks(second)))
    scale = float(np.sqrt((one @ one) * (two @ two)))
    # Rewards that differ by less than the rounding are all of one rank.
    return float(one @ two) / scale if scale else 0.0


def _ranks(values: FloatArray) -> FloatArray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank = counts.cumsum() - (counts - 1) / 2
    ranks: FloatArray = mean_rank[inverse]
    return ranks
