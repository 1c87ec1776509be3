"""The canonical rollout table: one row per response, the same columns whatever trainer wrote it.

Every dialect ends here and everything downstream starts here. Knows no files and no models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from ragen_diag.errors import DumpError
from ragen_diag.settings import FIRST_TURN, Scope

COMPONENTS = pl.List(pl.Struct({"key": pl.String, "value": pl.Float64}))
MESSAGES = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))

SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "step": pl.Int64,
    "group_id": pl.String,
    "group_source": pl.String,
    "sample_id": pl.String,
    "trajectory_id": pl.String,
    "turn": pl.Int32,
    "split": pl.String,
    "prompt": pl.String,
    "messages": MESSAGES,
    "response": pl.String,
    "reward": pl.Float64,
    "reward_components": COMPONENTS,
    "advantage": pl.Float64,
    "ground_truth": pl.String,
    "finish_reason": pl.String,
    "prompt_ids": pl.List(pl.Int32),
    "response_ids": pl.List(pl.Int32),
    "rollout_logprobs": pl.List(pl.Float32),
    "env": pl.String,
    "extra": pl.String,
    "_file": pl.String,
    "_row": pl.Int64,
    "_flags": pl.List(pl.String),
}
"""Column name -> dtype, in order. Every row has ids of its group and itself with their source, a
finish reason (maybe "unknown"), and what begins with `_`; any other value may be null."""


@dataclass(frozen=True)
class Rollouts:
    """The rows of one dump in canonical form, and what was met while reading them.

    `table` has exactly the columns of `SCHEMA`. `notes` counts what was repaired or dropped at
    reading, by reason (`{"nan_reward": 3}`); a reason that did not occur is absent.
    """

    table: pl.DataFrame
    dialect: str
    paths: tuple[str, ...]
    sha256: str | None
    notes: Mapping[str, int] = field(default_factory=dict)
    written_again: tuple[int, ...] = ()
    """Steps that stand in the dump twice, as after a resume, in ascending order."""

    @property
    def steps(self) -> list[int | None]:
        """The distinct steps in ascending order; [None] when the dump names none."""
        return self.table["step"].unique().sort(nulls_last=True).to_list()

    def at_step(self, step: int | None) -> "Rollouts":
        """The rows of one step.

        Raises:
            DumpError: no row has that step; the message lists the steps there are.
        """
        table = self.table.filter(pl.col("step").eq_missing(pl.lit(step, dtype=pl.Int64)))
        if table.is_empty():
            raise DumpError(
                f"{self.paths[0]}: no rows of step {step}; steps: {listing(self.steps)}"
            )
        return replace(self, table=table)

    def in_scope(self, scope: Scope = FIRST_TURN, *, seed: int = 0) -> "Rollouts":
        """The rows of the turns that a scope names; the others are counted in `notes`.

        "first_turn" and "trajectory_uniform" take one turn of every trajectory; "later_turn" and
        "turn_not_drawn" count the others. A row without `turn`, or with a turn of no trajectory
        that is named, is a trajectory of its own. The turn is drawn by `seed` among those there
        are, each as likely, whatever the order of rows. A "turn" is that of the table's own
        number; "other_turn" counts the others.

        Raises:
            DumpError: no row has the turn asked for; the message lists those there are.
        """
        if scope.kind == "turn":
            return self._where(self._of_turn(scope.turn), "other_turn")
        if scope.kind == "first_turn":
            return self._where(_is_first_turn(), "later_turn")
        return self._where(_drawn_turns(self.table, seed), "turn_not_drawn")

    def _where(self, kept: pl.Expr | pl.Series, reason: str) -> "Rollouts":
        table = self.table.filter(kept)
        left_out = self.table.height - table.height
        if not left_out:
            return self
        return replace(self, table=table, notes={**self.notes, reason: left_out})

    def _of_turn(self, number: int | None) -> pl.Expr:
        counts = dict(self.table["turn"].value_counts().sort("turn", nulls_last=True).rows())
        if number not in counts:
            there = listing([f"{_named(turn)} ({rows})" for turn, rows in counts.items()])
            raise DumpError(
                f"{self.paths[0]}: no rows of turn {number}; turns and their rows: {there}; choose"
                " one of them with --scope turn_K"
            )
        return pl.col("turn") == number


def _is_first_turn() -> pl.Expr:
    turn, trajectory = pl.col("turn"), pl.col("trajectory_id")
    # Where trajectories are not told apart, one that begins late cannot be known as such.
    first = (
        pl.when(trajectory.is_not_null())
        .then(turn.min().over("step", "trajectory_id"))
        .otherwise(turn.min())
    )
    return turn.is_null() | (turn == first)


def _drawn_turns(table: pl.DataFrame, seed: int) -> pl.Series:
    """Which rows are of the turn that was drawn for their trajectory, as a mask."""
    key = ["step", "trajectory_id"]
    # Sorted, so that the draws do not see the order of rows.
    turns = table.select(*key, "turn").drop_nulls(["trajectory_id", "turn"]).unique()
    trajectories = turns.sort(*key, "turn").group_by(key, maintain_order=True).agg("turn")
    lengths = trajectories["turn"].list.len().to_numpy()
    places = pl.lit(pl.Series(np.random.default_rng(seed).integers(0, lengths)))
    drawn = trajectories.with_columns(pl.col("turn").list.get(places))
    of_row = table.select(*key).join(
        drawn, on=key, how="left", nulls_equal=True, maintain_order="left"
    )["turn"]
    return (table["turn"] == of_row).fill_null(True)


def listing(names: Sequence[int | str | None]) -> str:
    """Steps, names or the like as a text, the first twenty of them.

    >>> listing([1, 20, None])
    '1, 20, none'
    """
    shown = ", ".join(_named(name) for name in names[:20])
    return shown + (f", ... ({len(names)} in all)" if len(names) > 20 else "")


def _named(name: int | str | None) -> str:
    return "none" if name is None else str(name)
