"""Keys of the rows that stay -> the groups, one row each, with their rewards' variance.

The same numbers as `metrics.reward_groups`, for millions of groups at once and over all steps.
Knows no texts: of a group's texts only their hashes are here.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ragen_diag.dumps.decisions import Decided
from ragen_diag.dumps.grouping import GROUP, group_columns
from ragen_diag.metrics.reward import Bucket
from ragen_diag.metrics.reward_groups import BUCKETS, MIN_REWARDS
from ragen_diag.settings import Settings
from ragen_diag.survey.facts import Variance
from ragen_diag.survey.hashes import one_hash

FloatArray = NDArray[np.float64]

_FLAT = ("unscored", "singleton", "equal")


def trajectories(decided: Decided) -> pl.DataFrame:
    """One row per trajectory, its first turn: `at`, the row's place among those that stay; step;
    `group`, equal within a group alone; prompt and response; the trajectory's reward.

    A row with a turn but without a trajectory is one if it is of the step's earliest turn.
    """
    keys = group_columns(decided.keys, decided.grouping)
    if decided.rewards is not None:
        keys = keys.with_columns(reward=decided.rewards)
    by = [name for name in GROUP if keys[name].null_count() < keys.height]
    rows = keys.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("at"),
        pl.col("step").cast(pl.Int64),
        one_hash(*by).alias("group"),
        *("trajectory", "turn", "prompt", "response"),
        pl.col("reward").cast(pl.Float64),
    )
    turn, trajectory = pl.col("turn"), pl.col("trajectory")
    if rows["turn"].dtype != pl.Null:
        of_trajectory = turn.min().over("step", "trajectory")
        of_step = turn.min().over("step")
        first = pl.when(trajectory.is_null()).then(of_step).otherwise(of_trajectory)
        rows = rows.filter(turn.is_null() | (turn == first))
    return rows.drop("trajectory", "turn")


def group_table(
    rows: pl.DataFrame,
    *,
    atol: float = Settings.flat_atol,
    rtol: float = Settings.flat_rtol,
) -> pl.DataFrame:
    """The groups of `trajectories`, in the order of their first rows (`at`).

    `size` counts trajectories, `n` rewards that are numbers; `mean`, `low`, `high` and `var` (ddof
    1, null below two rewards, 0 where they are equal within the tolerance) are of those. `flat`
    is null for a group that varies, else "unscored", "singleton" or "equal". `one_prompt` and
    `one_text` say whether prompts and responses are all the same (null without any), `prompt` is
    one of them.
    """
    groups = _aggregated(rows)
    equal = pl.col("high") - pl.col("low") <= atol + rtol * pl.col("mean").abs()
    flat = (
        pl.when(pl.col("n") == 0)
        .then(pl.lit("unscored"))
        .when(pl.col("n") < MIN_REWARDS)
        .then(pl.lit("singleton"))
        .when(equal)
        .then(pl.lit("equal"))
    )
    var = pl.when(equal).then(0.0).otherwise("var")
    whole = pl.col("texts") == pl.col("size")
    return groups.select(
        *("at", "step", "size", "n", "mean", "low", "high", "prompt"),
        pl.when(pl.col("n") >= MIN_REWARDS).then(var).alias("var"),
        flat.cast(pl.Enum(_FLAT)).alias("flat"),
        (pl.col("prompt") == pl.col("other_prompt")).alias("one_prompt"),
        (whole & (pl.col("text") == pl.col("other_text"))).alias("one_text"),
    )


def _aggregated(rows: pl.DataFrame) -> pl.DataFrame:
    """Counts, bounds and moments of every group, in the order of their first rows."""
    reward, prompt, response = pl.col("reward"), pl.col("prompt"), pl.col("response")
    # The streaming engine is twice as fast, but adds up in an order that differs every time.
    moments = rows.group_by("group", maintain_order=True).agg(
        reward.mean().alias("mean"), reward.var().alias("var")
    )
    counts = (
        rows.lazy()
        .group_by("group")
        .agg(
            pl.col("at", "step").min(),
            pl.len().alias("size"),
            reward.count().alias("n"),
            reward.min().alias("low"),
            reward.max().alias("high"),
            prompt.min(),
            prompt.max().alias("other_prompt"),
            response.count().alias("texts"),
            response.min().alias("text"),
            response.max().alias("other_text"),
        )
    )
    # By their first rows: the order in which the other engine met them.
    return counts.collect(engine="streaming").sort("at").hstack(moments.drop("group"))


def variance(groups: pl.DataFrame) -> Variance:
    """The reward differences within all groups; buckets as in `metrics.reward_groups`."""
    counts = dict(groups["flat"].drop_nulls().cast(pl.String).value_counts().rows())
    unscored, singleton, flat = (counts.get(reason, 0) for reason in _FLAT)
    compared = groups.height - unscored - singleton
    var_G = groups["var"].drop_nulls().to_numpy()
    varying_G = np.sort(groups.filter(pl.col("flat").is_null())["var"].to_numpy())
    return Variance(
        groups=groups.height,
        compared=compared,
        flat=flat,
        flat_share=flat / compared if compared else None,
        unscored=unscored,
        singleton=singleton,
        in_group_reward_var=float(var_G.mean()) if var_G.size else None,
        buckets=tuple(
            _bucket(f"Q{number}", part)
            for number, part in enumerate(np.array_split(varying_G, BUCKETS), start=1)
        ),
    )


def _bucket(name: str, var_G: FloatArray) -> Bucket:
    """Ties in variance may fall on either side of a border: no number depends on which."""
    if not var_G.size:
        return Bucket(name=name, groups=0, rv_min=None, rv_mean=None, rv_max=None, std_mean=None)
    return Bucket(
        name=name,
        groups=len(var_G),
        rv_min=float(var_G[0]),
        rv_mean=float(var_G.mean()),
        rv_max=float(var_G[-1]),
        std_mean=float(np.sqrt(var_G).mean()),
    )
