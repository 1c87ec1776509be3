"""Reward variance: where the task gradient can come from (RAGEN-2, Sec. 3-4).

Comes in: one raw reward per trajectory and the group (prompt) each belongs to. Goes out: the
three variances, flat groups by reason, buckets by variance, and whether a filter by variance is
likely to help. Knows nothing of models, scores or filters.

N rows, G groups, n finite rewards of one group.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.reward_groups import (
    BUCKETS,
    FLAT_REASONS,
    MIN_REWARDS,
    GroupReward,
    RewardRows,
    group_table,
)

__all__ = [
    "Applicability",
    "Bucket",
    "GroupReward",
    "RewardRows",
    "RewardSignal",
    "flat_share_by_chance",
    "group_table",
    "reward_signal",
]

FloatArray = NDArray[np.float64]
Applicability = Literal["likely_helps", "unclear", "likely_hurts", "undefined"]

CV_HELPS = 1.0
CV_HURTS = 0.5
"""Cuts on the CV of the in-group std, ours. The paper's Table 8 gives three rows and no cut:
1.29 (+4.6 %), 1.16 (+3.2 %), 0.33 (-5.0 %)."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One sixth of the varying groups by reward variance, Q1 lowest."""

    name: str
    groups: int
    rv_min: float | None
    rv_mean: float | None
    rv_max: float | None
    std_mean: float | None


@dataclass(frozen=True, kw_only=True)
class RewardSignal:
    """The reward side of one step. Variances in reward units squared, stds in reward units."""

    mean: float | None
    pooled_var: float | None
    between_prompt_var: float | None
    within_prompt_var: float | None
    in_group_reward_std: float | None
    in_group_reward_var: float | None
    flat_groups: Mapping[str, float | int | None]
    buckets: tuple[Bucket, ...]
    cv_std: float | None
    cv_var: float | None
    applicability: Applicability
    reason: str | None = None
    median_group_size: float | None = None


def reward_signal(rows: RewardRows) -> RewardSignal:
    """The reward side of a step; every number is None, with a reason, when no reward is finite.

    `pooled_var` is the variance (ddof 0) of all finite rewards. It is the sum of
    `between_prompt_var`, of the group means, and `within_prompt_var`, around them; both weigh a
    group by n, or they would not add up for uneven groups. Only the part within is signal.

    `in_group_reward_var` and `in_group_reward_std` are means over the groups with n >= 2, each
    weighing the same, of the sample variance and of its root. The public code logs the latter
    under the name reward_variance.

    `cv_std` and `cv_var` are the population std over the mean of those groups' stds and variances,
    flat groups included; None below two such groups or where the mean is 0. `applicability` goes
    by `cv_std` (Table 8, where RV is a std).

    `median_group_size` is that of the groups' numbers of finite rewards.

    `flat_groups` counts the groups without signal by `FLAT_REASONS`. Of all `groups` those with two
    finite rewards or more are `compared`; `flat` of them have no variance, `flat_share` of
    `compared`. A group of one reward is not flat: nothing can be told of its variance.
    """
    table = group_table(rows)
    rewards = rows.finite()
    var_G = np.array([row.var for row in table if row.var is not None])
    between, within = _between_and_within(rows, table)
    cv_std, cv_var = _cv(np.sqrt(var_G)), _cv(var_G)
    return RewardSignal(
        mean=_mean(rewards),
        pooled_var=float(rewards.var()) if rewards.size else None,
        between_prompt_var=between,
        within_prompt_var=within,
        in_group_reward_std=_mean(np.sqrt(var_G)),
        in_group_reward_var=_mean(var_G),
        flat_groups=_flat_groups(rows, table),
        buckets=tuple(_bucket(f"Q{number}", table) for number in range(1, BUCKETS + 1)),
        cv_std=cv_std,
        cv_var=cv_var,
        applicability=_applicability(cv_std),
        reason=_reason(rows, var_G),
        median_group_size=float(np.median([row.n for row in table])) if table else None,
    )


def flat_share_by_chance(reward_N: FloatArray, n_G: Sequence[int]) -> float | None:
    """Share of flat groups if every prompt were equally hard: mean of p^n + (1 - p)^n.

    p is the batch's share of the higher of two reward values; None unless there are exactly two.
    Groups with n <= 1 are flat for certain. p is not taken per prompt: a flat group's own p is 0
    or 1, so that it would explain itself. What is observed beyond this share is prompts that
    differ in difficulty.

    >>> flat_share_by_chance(np.array([0.0, 0.0, 0.0, 1.0]), [2, 2])
    0.625
    """
    finite = reward_N[np.isfinite(reward_N)]
    values = np.unique(finite)
    if len(values) != 2 or not len(n_G):
        return None
    p = float((finite == values[1]).mean())
    return float(np.mean([p**n + (1.0 - p) ** n if n > 1 else 1.0 for n in n_G]))


def _mean(values: FloatArray) -> float | None:
    return float(values.mean()) if values.size else None


def _between_and_within(
    rows: RewardRows, table: Sequence[GroupReward]
) -> tuple[float | None, float | None]:
    rewards = rows.finite()
    if not rewards.size:
        return None, None
    mean_of = {row.group: row.mean for row in table}
    finite_N = np.isfinite(rows.reward_N)
    groups = [group for group, kept in zip(rows.group_N, finite_N, strict=True) if kept]
    mean_N = np.array([mean_of[group] for group in groups], dtype=np.float64)
    between = float(np.mean((mean_N - rewards.mean()) ** 2))
    return between, float(np.mean((rewards - mean_N) ** 2))


def _flat_groups(rows: RewardRows, table: Sequence[GroupReward]) -> dict[str, float | int | None]:
    counted = Counter(row.flat for row in table if row.flat is not None)
    compared = [row for row in table if row.n >= MIN_REWARDS]
    flat = sum(row.flat is not None for row in compared)
    return {
        "groups": len(table),
        "compared": len(compared),
        "flat": flat,
        "flat_share": flat / len(compared) if compared else None,
        "flat_share_by_chance": flat_share_by_chance(rows.reward_N, [row.n for row in compared]),
        **{reason: counted[reason] for reason in FLAT_REASONS},
    }


def _bucket(name: str, table: Sequence[GroupReward]) -> Bucket:
    var_G = np.array([row.var for row in table if row.bucket == name and row.var is not None])
    return Bucket(
        name=name,
        groups=len(var_G),
        rv_min=float(var_G.min()) if var_G.size else None,
        rv_mean=_mean(var_G),
        rv_max=float(var_G.max()) if var_G.size else None,
        std_mean=_mean(np.sqrt(var_G)),
    )


def _cv(values_G: FloatArray) -> float | None:
    if len(values_G) < MIN_REWARDS or not values_G.any():
        return None
    return float(values_G.std() / values_G.mean())


def _applicability(cv_std: float | None) -> Applicability:
    if cv_std is None:
        return "undefined"
    if cv_std > CV_HELPS:
        return "likely_helps"
    return "likely_hurts" if cv_std < CV_HURTS else "unclear"


def _reason(rows: RewardRows, var_G: FloatArray) -> str | None:
    rewards = rows.finite()
    if not rewards.size:
        return "no finite reward"
    if rows.flat(rewards):
        return f"every reward of the batch is {float(rewards[0]):.6g}"
    if len(var_G) < MIN_REWARDS:
        return "fewer than two groups with at least two rewards"
    return None if var_G.any() else "no group has rewards that differ"
