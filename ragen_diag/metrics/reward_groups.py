"""Each prompt's rewards: their variance, and why there is none where there is none.

Comes in: one raw reward per trajectory and the group (prompt) each belongs to. Goes out: one
`GroupReward` per group. Knows nothing of models, scores or filters.

N rows, n finite rewards of one group. A reward that is NaN or infinite is unscored: it is left out
of every statistic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.text import normal

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FlatReason = Literal[
    "unscored",
    "singleton",
    "truncated",
    "identical_texts",
    "all_solved",
    "all_failed",
    "mid_value",
    "constant_batch",
]
FLAT_REASONS: tuple[FlatReason, ...] = get_args(FlatReason)
"""In the order they are tried. The first that holds is the group's, so that the counts add up."""

UNCOMPARED: tuple[FlatReason, ...] = ("unscored", "singleton")
"""Groups of fewer than two rewards: not flat, as nothing can be told of their variance."""

BUCKETS = 6
MIN_REWARDS = 2
"""One reward has no variance."""
MIN_TEXTS = 2
"""One text is always a distinct one."""


@dataclass(frozen=True, kw_only=True)
class Distinct:
    """How many of a group's `texts` differ: `exact`, and `normal` where white space is none."""

    texts: int
    exact: int
    normal: int


@dataclass(frozen=True, kw_only=True)
class RewardRows:
    """The rows of one step, one per trajectory, and when a group counts as flat.

    `texts_N` are the responses (None where the dump has none), `truncated_N` says which ended at
    the length cap, `success_N` is a success component (0..1, NaN where missing); each may be left
    out. A group is flat when
    max - min <= atol + rtol * |mean| over its finite rewards: seven times 0.1 has variance 2e-34.
    `ddof` is 1 (sample variance, Sec. 3) or 0.
    """

    reward_N: FloatArray
    group_N: Sequence[str]
    texts_N: Sequence[str | None] | None = None
    truncated_N: NDArray[np.bool_] | None = None
    success_N: FloatArray | None = None
    ddof: int = 1
    atol: float = 1e-9
    rtol: float = 1e-9

    def members(self) -> dict[str, IntArray]:
        """Row numbers of every group, groups in first-seen order."""
        rows: dict[str, list[int]] = {}
        for row, group in enumerate(self.group_N):
            rows.setdefault(group, []).append(row)
        return {group: np.array(found, dtype=np.int64) for group, found in rows.items()}

    @cached_property
    def distinct(self) -> dict[str, Distinct]:
        """The different texts of every group, over the rows that have one."""
        if self.texts_N is None:
            return {}
        found = {}
        for group, members in self.members().items():
            texts = [text for row in members if (text := self.texts_N[row]) is not None]
            exact = set(texts)
            found[group] = Distinct(
                texts=len(texts), exact=len(exact), normal=len({normal(text) for text in exact})
            )
        return found

    def finite(self) -> FloatArray:
        """The rewards that are numbers."""
        return self.reward_N[np.isfinite(self.reward_N)]

    def flat(self, values: FloatArray) -> bool:
        """Whether finite `values` are equal within the tolerance."""
        spread = float(values.max() - values.min())
        return spread <= self.atol + self.rtol * abs(float(values.mean()))


@dataclass(frozen=True, kw_only=True)
class GroupReward:
    """One group: `n` finite rewards, their mean and variance, its bucket or why it is flat.

    `var` is None below two finite rewards, and 0 for a flat group. `bucket` is "Q1".."Q6" for a
    group that varies, "flat" for one whose rewards are equal, None where nothing can be compared.
    `distinct_exact` and `distinct` are different texts over texts, the latter without regard to
    white space; None below two texts.
    """

    group: str
    n: int
    mean: float | None
    var: float | None
    flat: FlatReason | None
    bucket: str | None = None
    distinct_exact: float | None = None
    distinct: float | None = None


def group_table(rows: RewardRows) -> list[GroupReward]:
    """Every group, in first-seen order.

    Buckets split the varying groups, stably sorted by variance, into six of nearly equal size:
    Q1 lowest, the first take the remainder, ties keep their order, and with fewer than six groups
    the last are empty.

    >>> rows = RewardRows(reward_N=np.array([0.0, 1.0, 1.0, 1.0]), group_N=["a", "a", "b", "b"])
    >>> [(row.group, row.var, row.bucket, row.flat) for row in group_table(rows)]
    [('a', 0.5, 'Q1', None), ('b', 0.0, 'flat', 'all_solved')]
    """
    found = [_group(rows, group, members) for group, members in rows.members().items()]
    varying = [row for row in found if row.flat is None]
    var_G = np.array([row.var for row in varying], dtype=np.float64)
    rank = np.argsort(var_G, kind="stable")
    bucket_of: dict[str, str] = {}
    for number, part in enumerate(np.array_split(rank, BUCKETS), start=1):
        bucket_of |= {varying[index].group: f"Q{number}" for index in part}
    return [
        replace(row, bucket=bucket_of.get(row.group, "flat" if row.n >= MIN_REWARDS else None))
        for row in found
    ]


def _group(rows: RewardRows, group: str, members: IntArray) -> GroupReward:
    rewards = rows.reward_N[members]
    rewards = rewards[np.isfinite(rewards)]
    flat = _flat_reason(rows, group, members, rewards)
    var = None
    if len(rewards) >= MIN_REWARDS:
        var = 0.0 if flat else float(rewards.var(ddof=rows.ddof))
    mean = float(rewards.mean()) if len(rewards) else None
    found = GroupReward(group=group, n=len(rewards), mean=mean, var=var, flat=flat)
    texts = rows.distinct.get(group)
    if texts is None or texts.texts < MIN_TEXTS:
        return found
    return replace(
        found, distinct_exact=texts.exact / texts.texts, distinct=texts.normal / texts.texts
    )


def _flat_reason(
    rows: RewardRows, group: str, members: IntArray, rewards: FloatArray
) -> FlatReason | None:
    if len(rewards) == 0:
        return "unscored"
    if len(rewards) < MIN_REWARDS:
        return "singleton"
    if not rows.flat(rewards):
        return None
    if rows.truncated_N is not None and rows.truncated_N[members].all():
        return "truncated"
    texts = rows.distinct.get(group)
    if texts is not None and texts.normal == 1 and texts.texts == len(members):
        return "identical_texts"
    return _level(rows, members, rewards)


def _level(rows: RewardRows, members: IntArray, rewards: FloatArray) -> FlatReason:
    """Solved or failed: by the success component where there is one, else by the batch's range."""
    if rows.success_N is not None and np.isfinite(rows.success_N[members]).all():
        success = rows.success_N[members]
        if (success >= 1.0).all():
            return "all_solved"
        return "all_failed" if (success <= 0.0).all() else "mid_value"
    batch = rows.finite()
    if rows.flat(batch):
        return "constant_batch"
    value = float(rewards.mean())
    if rows.flat(np.array([value, batch.max()])):
        return "all_solved"
    return "all_failed" if rows.flat(np.array([value, batch.min()])) else "mid_value"
