"""What is met while the batches of a dump go by: notes, reward columns, lost lines, examples.

Kept beside the rows, as it must be known even where the rows are not kept. Knows no files' formats.
"""

from collections import Counter
from dataclasses import dataclass, field

import polars as pl

from ragen_diag.dumps.source import Batch
from ragen_diag.errors import DumpError
from ragen_diag.settings import Reading

FEW_BAD = 10
"""So many unreadable rewards are never too many."""
EXAMPLES = 3
REPAIRS = ("invalid_utf8", "lone_surrogate")
"""Flags of rows whose characters were replaced."""


@dataclass
class Ledger:
    """Sums over all batches so far."""

    notes: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    """Note -> the first few rows it is about, as "FILE row N"."""
    candidates: dict[str, None] = field(default_factory=dict)
    filled: dict[str, int] = field(default_factory=dict)
    """Column of the files -> number of batches in which it holds a value."""
    rows: int = 0
    rewarded: bool = False
    instead: str | None = None
    numbers: int = 0
    """Rows whose reward is a number."""

    def add(self, path: str, batch: Batch) -> None:
        """Take a batch into account."""
        self.rows += batch.table.height
        self.notes.update(batch.notes)
        self.candidates |= dict.fromkeys(batch.candidates)
        for name in batch.columns:
            self.filled[name] = self.filled.get(name, 0) + 1
        for what in batch.lost:
            self._place("bad_line", f"{path} {what}")
        flags = batch.table["_flags"]
        if flags.list.len().sum():
            self._flags(path, batch.table)
        if batch.reward is not None:
            self.rewarded = True
            self.numbers += int(batch.reward.value.is_not_null().sum())
            self.instead = self.instead or batch.reward.instead
        else:
            self.notes["no_reward_column"] += batch.table.height

    def _flags(self, path: str, table: pl.DataFrame) -> None:
        self._repaired_prompts(path, table)
        told = table.select("_row", "_flags").explode("_flags").drop_nulls("_flags")
        counts = told.group_by("_flags", maintain_order=True).agg(
            pl.len(), pl.col("_row").head(EXAMPLES)
        )
        for flag, count, rows in counts.iter_rows():
            self.notes[flag] += count
            for row in rows:
                self._place(flag, f"{path} row {row}")

    def _repaired_prompts(self, path: str, table: pl.DataFrame) -> None:
        """Prompts without an id of their group, of which a repair may have made others."""
        repaired = table.filter(
            pl.col("group_id").is_null(),
            pl.col("_flags").list.set_intersection(list(REPAIRS)).list.len() > 0,
            pl.coalesce("prompt", _joined("messages")).str.contains("\ufffd", literal=True),
        )["_row"]
        if len(repaired):
            self.notes["repaired_prompt"] += len(repaired)
            for row in repaired.head(EXAMPLES):
                self._place("repaired_prompt", f"{path} row {row}")

    def _place(self, note: str, where: str) -> None:
        known = self.places.setdefault(note, [])
        if len(known) < EXAMPLES:
            known.append(where)

    def require_reward(self, path: str, reading: Reading) -> None:
        """Refuse a dump without a reward that can be used.

        Raises:
            DumpError: no reward column, none of its values is a number, or too many are not.
        """
        named = ", ".join(name for name, _ in reading.rewards)
        if not self.rewarded:
            listed = ", ".join(self.candidates) or "none"
            if named:
                raise DumpError(f"{path}: no reward column '{named}'; candidates: {listed}")
            first = next(iter(self.candidates), None)
            step = "add one named 'reward'" if first is None else f"try --reward {first}"
            columns = ", ".join(self.filled)
            raise DumpError(
                f"{path}: no reward column; found {columns}; {step}, or --reward none to go without"
            )
        if self.instead and not self.numbers:
            quoted = f"'{named}' " if named else ""
            raise DumpError(
                f"{path}: no value of the reward {quoted}is a number, but {self.instead}; write one"
                " number per response, or name another column with --reward"
            )
        bad = self.notes["bad_reward"]
        if bad > FEW_BAD and bad > reading.max_bad_share * self.rows:
            where = ", ".join(self.places["bad_reward"])
            raise DumpError(
                f"{path}: {bad} of {self.rows} rewards are no numbers ({where}); correct them, or"
                " raise --max-bad-rows"
            )


def _joined(messages: str) -> pl.Expr:
    """The contents of a list of messages as one text."""
    return (
        pl.col(messages)
        .list.eval(pl.element().struct.field("content"))
        .list.join("\n", ignore_nulls=True)
    )
