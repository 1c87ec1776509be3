"""Keys of all rows of a dump -> what becomes of each: kept or not, its group, ids and reward.

Only the whole dump can tell, so this comes after all batches were read once. Knows no texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ragen_diag.dumps.dialect import Dialect
from ragen_diag.dumps.grouping import Grouping, Numbers, group_rows, number_rows, with_ids
from ragen_diag.dumps.repeats import Again, kept_rows, padding_copies, steps_written_again
from ragen_diag.dumps.returns import trajectory_rewards
from ragen_diag.errors import DumpError
from ragen_diag.settings import Reading


@dataclass(frozen=True)
class Decided:
    """What becomes of the rows behind `keys`, which are those that stay.

    `keep` is None where all rows stay, `rewards` where each row keeps its own.
    """

    keys: pl.DataFrame
    keep: pl.Series | None
    grouping: Grouping
    rewards: pl.Series | None
    again: tuple[Again, ...]
    notes: dict[str, int]
    by_file: bool = False
    """Whether trajectory ids start again in every file, so that they name one with it alone."""

    def numbered(self) -> Numbers:
        """The numbers that ids of rows are made of."""
        return number_rows(self.keys, self.grouping)

    def applied(
        self, table: pl.DataFrame, numbers: Numbers, *, before: int, kept: int
    ) -> pl.DataFrame:
        """A batch of the table with its rows left out, grouped and rewarded as decided.

        `before` rows of the dump stand before it, of which `kept` stay.
        """
        if self.keep is not None:
            table = table.filter(self.keep[before : before + table.height])
        if self.rewards is not None:
            table = table.with_columns(reward=self.rewards[kept : kept + table.height])
        if self.by_file:
            table = table.with_columns(
                trajectory_id=pl.col("_file") + ":" + pl.col("trajectory_id")
            )
        return with_ids(table, self.grouping, numbers, kept)


def decide(
    keys: pl.DataFrame, dialect: Dialect, paths: Sequence[Path | str], reading: Reading
) -> Decided:
    """Decide by the dialect's habits and the user's choices.

    Notes: "other_split" rows of splits that were not asked for; "padding_copy" rows that repeat an
    earlier one, where the trainer pads so; "step_written_twice" rows of which a later or earlier
    writing was taken; "trajectory_ids_repeat_in_files" rows of a dump whose files, of ranks
    perhaps, count their trajectories anew; and those of grouping and rewards.

    Raises:
        DumpError: a step was written twice and nothing says which is meant; no row is of the split.
    """
    notes: dict[str, int] = {}
    keep = pl.repeat(True, keys.height, eager=True)
    if reading.split is not None:
        keep = _of_split(keys, reading.split, paths)
        notes["other_split"] = keys.height - int(keep.sum())
    if dialect.drops_copies:
        copies = padding_copies(keys) & keep
        notes["padding_copy"] = int(copies.sum())
        keep &= ~copies
    again, parts = steps_written_again(keys, paths)
    if again and reading.on_duplicate_step == "error":
        raise DumpError(_written_twice(again[0], parts, keys, paths))
    stay = kept_rows(keys, parts, again, reading.on_duplicate_step)
    if reading.on_duplicate_step in ("first", "last"):
        notes["step_written_twice"] = int((keep & ~stay).sum())
    keep &= stay
    everything = bool(keep.all())
    kept = keys if everything else keys.filter(keep)
    by_file = _start_again(kept)
    if by_file:
        notes["trajectory_ids_repeat_in_files"] = kept.height
        kept = kept.with_columns(trajectory=pl.col("trajectory") ^ pl.col("file").hash(seed=1))
    grouping = group_rows(kept, contiguous=dialect.contiguous)
    rewards, told = trajectory_rewards(kept, reading.reward_reduce)
    notes = {name: count for name, count in notes.items() if count}
    return Decided(
        keys=kept,
        keep=None if everything else keep,
        grouping=grouping,
        rewards=rewards,
        again=tuple(again),
        notes={**notes, **grouping.notes, **told},
        by_file=by_file,
    )


def _start_again(keys: pl.DataFrame) -> bool:
    """Whether a turn of a trajectory stands in several files, and so is that of several."""
    if keys["trajectory"].dtype == pl.Null or keys["file"].n_unique() < 2:
        return False
    turns = keys.filter(pl.col("trajectory").is_not_null()).group_by("step", "trajectory", "turn")
    return bool(turns.agg(pl.col("file").n_unique() > 1)["file"].any())


def _of_split(keys: pl.DataFrame, split: str, paths: Sequence[Path | str]) -> pl.Series:
    keep = (keys["split"].cast(pl.String) == split).fill_null(False)
    if not keep.any():
        there = ", ".join(keys["split"].cast(pl.String).drop_nulls().unique().sort()) or "none"
        raise DumpError(f"{paths[0]}: no rows of split {split!r}; splits: {there}")
    return keep


def _written_twice(
    again: Again, parts: pl.Series, keys: pl.DataFrame, paths: Sequence[Path | str]
) -> str:
    files = [paths[keys["file"].filter(parts == part)[0]] for part in (again.earlier, again.later)]
    where = f"in {files[0]} and in {files[1]}" if files[0] != files[1] else f"twice in {files[0]}"
    return (
        f"{files[1]}: step {again.step} was written {where} ({again.rows_earlier} and"
        f" {again.rows_later} rows), as by a run that was resumed; say which one is meant with"
        " --on-duplicate-step last or first, or merge if they are parts of one"
    )
