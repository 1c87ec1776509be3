"""One reward per trajectory: what rows that are turns of one trajectory earned together.

Trainers write a trajectory's reward on every turn, on the last one with zeros before it, or a
reward for each turn. Comes in: keys of all rows. Knows no dialects.
"""

from collections.abc import Mapping

import polars as pl

from ragen_diag.settings import Reduce

DONE: Mapping[Reduce, str] = {"sum": "summed", "last": "last_taken", "mean": "averaged"}
"""What a note says was done with several rewards that became one."""


def trajectory_rewards(
    keys: pl.DataFrame, how: Reduce | None
) -> tuple[pl.Series | None, dict[str, int]]:
    """The reward of every row's trajectory, or None where no trajectory has several rows.

    If the turns of every trajectory have one reward, it is the trajectory's. Otherwise they are
    summed (`how` may say "last" or "mean"), and the rows are counted as "turn_rewards_summed",
    "turn_rewards_last_taken" or "turn_rewards_averaged". A turn whose reward is missing adds
    nothing; a trajectory without any has none. Where later turns name no trajectory their rewards
    belong to nobody: "turns_of_no_trajectory". Where several rows of a trajectory name no turn,
    nothing tells the first: "rows_of_no_turn".
    """
    lost = _turns_of_no_trajectory(keys)
    if keys["trajectory"].dtype == pl.Null:
        return None, lost
    over = ("step", "trajectory")
    several = keys.select(pl.len().over(over) > 1).to_series() & keys["trajectory"].is_not_null()
    if not several.any():
        return None, lost
    unplaced = int((several & keys["turn"].is_null()).sum())
    lost |= {"rows_of_no_turn": unplaced} if unplaced else {}
    reward = pl.col("reward").cast(pl.Float64)
    one = keys.filter(several).select(
        (reward.max().over(over) == reward.min().over(over)).fill_null(True).all()
    )
    if how is None and one.item():
        # A turn without a reward has its trajectory's.
        shared = keys.select(pl.when(several).then(reward.max().over(over)).otherwise(reward))
        return shared.to_series(), lost
    turns_in_order = reward.sort_by("turn").drop_nulls()
    taken = {
        "sum": reward.sum(),
        "last": turns_in_order.last(),
        "mean": reward.mean(),
    }[how or "sum"]
    whole = pl.when(reward.is_not_null().any()).then(taken).over(over)
    rewards = keys.select(pl.when(several).then(whole).otherwise(reward)).to_series()
    return rewards, {**lost, f"turn_rewards_{DONE[how or 'sum']}": int(several.sum())}


def _turns_of_no_trajectory(keys: pl.DataFrame) -> dict[str, int]:
    if keys["turn"].dtype == pl.Null:
        return {}
    alone = keys.filter(pl.col("trajectory").is_null())
    rows = int((alone["turn"] > keys["turn"].min()).sum())
    # Where all turns earned the same, that is nothing that could be lost.
    return {"turns_of_no_trajectory": rows} if rows and alone["reward"].n_unique() > 1 else {}
