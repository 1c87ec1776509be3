"""The canonical rollout table: one row per response, the same columns whatever trainer wrote it.

Every dialect ends here and everything downstream starts here. Knows no files and no models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from ragen_diag.errors import DumpError

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
"""Column name -> dtype, in order. `step`, ids and texts may be null where the design allows it."""


@dataclass(frozen=True)
class Rollouts:
    """The rows of one dump in canonical form, and what was met while reading them.

    `table` has exactly the columns of `SCHEMA`. `notes` counts what was repaired or dropped at
    reading, by reason (`{"nan_reward": 3}`); a reason that did not occur is absent.
    """

    table: pl.DataFrame
    dialect: str
    paths: tuple[str, ...]
    sha256: str
    notes: Mapping[str, int] = field(default_factory=dict)

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

    def first_turns(self) -> "Rollouts":
        """Only the first turn of every trajectory; the other rows are counted in `notes`.

        Later turns have the model's own earlier reasoning in their prompt, so that a high MI there
        may be self-copying, and must never be scored under another turn's prompts.
        """
        turn, trajectory = pl.col("turn"), pl.col("trajectory_id")
        # Where trajectories are not told apart, one that begins late cannot be known as such.
        first = (
            pl.when(trajectory.is_not_null())
            .then(turn.min().over("step", "trajectory_id"))
            .otherwise(turn.min())
        )
        table = self.table.filter(turn.is_null() | (turn == first))
        later = self.table.height - table.height
        if not later:
            return self
        return replace(self, table=table, notes={**self.notes, "later_turn": later})


def listing(steps: list[int | None]) -> str:
    """Steps as a text, the first twenty of them.

    >>> listing([1, 20, None])
    '1, 20, none'
    """
    shown = ", ".join("none" if step is None else str(step) for step in steps[:20])
    return shown + (f", ... ({len(steps)} in all)" if len(steps) > 20 else "")
