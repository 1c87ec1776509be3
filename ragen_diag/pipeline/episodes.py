"""Rows that are turns of one trajectory -> what the whole trajectory earned, part by part.

The reward is the trajectory's since the dump was read; here its components become so. Knows the
canonical table, no dialects and no metrics.
"""

from dataclasses import replace

import polars as pl

from ragen_diag.pipeline.step import SUCCESS_NAMES
from ragen_diag.rollouts import COMPONENTS, Rollouts
from ragen_diag.settings import Reduce


def with_earned_components(rollouts: Rollouts, how: Reduce | None = None) -> Rollouts:
    """The rows of one step; those of a trajectory with several rows have its components.

    A component of which the turns of every trajectory have one value, or none, is the
    trajectory's. Of others the turns' values are summed, as their rewards are (`how` may say "last"
    or "mean"), and a success at any turn is a success; these rows are counted as
    "turn_components_joined". Otherwise a trajectory that succeeds at its last turn would be one
    that failed at its first.
    """
    table = rollouts.table.with_row_index("_at")
    trajectory = pl.col("trajectory_id")
    several = trajectory.is_not_null() & (pl.len().over("trajectory_id") > 1)
    parts = (
        table.filter(several & (pl.col("reward_components").list.len() > 0))
        .select("trajectory_id", "turn", "reward_components")
        .explode("reward_components", empty_as_null=False, keep_nulls=False)
        .unnest("reward_components")
    )
    if parts.is_empty():
        return rollouts
    earned = _earned(parts, how)
    joined = earned.filter("joined")["trajectory_id"].unique()
    whole = earned.group_by("trajectory_id", maintain_order=True).agg(
        whole=pl.struct("key", "value")
    )
    rows = table.join(whole, on="trajectory_id", how="left", maintain_order="left").with_columns(
        reward_components=pl.coalesce(pl.col("whole").cast(COMPONENTS), "reward_components")
    )
    touched = int(rows["trajectory_id"].is_in(joined.implode()).sum())
    notes = {"turn_components_joined": touched} if touched else {}
    return replace(
        rollouts,
        table=rows.select(rollouts.table.columns),
        notes={**rollouts.notes, **notes},
    )


def _earned(parts: pl.DataFrame, how: Reduce | None) -> pl.DataFrame:
    """A row per trajectory and component: its `value`, and whether it was `joined` of several."""
    value = pl.col("value")
    in_order = value.sort_by("turn").drop_nulls()
    taken = {"sum": value.sum(), "last": in_order.last(), "mean": value.mean()}[how or "sum"]
    known = value.is_not_null().any()
    found = parts.group_by("trajectory_id", "key", maintain_order=True).agg(
        low=value.min(), high=value.max(), taken=pl.when(known).then(taken)
    )
    shared = (pl.col("low") == pl.col("high")).fill_null(True).all().over("key")
    success = pl.col("key").is_in(SUCCESS_NAMES) & pl.lit(how != "last")
    whole = pl.when(shared | success).then("high").otherwise("taken")
    return found.select("trajectory_id", "key", value=whole, joined=~shared)
