"""Chunks of records -> flat records, one per row: shapes undone, episodes taken apart.

Knows dialects only by their `unfold`.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ragen_diag.dumps.dialect import PLACE, SKIPPED, Dialect
from ragen_diag.dumps.raw import Record
from ragen_diag.dumps.records import Chunk
from ragen_diag.dumps.shapes import rows_of
from ragen_diag.errors import DumpError, UsageError
from ragen_diag.settings import Reading

_Value = TypeVar("_Value")


@dataclass
class FlatRecords:
    """One record per row, with the number and flags of the record that each came from."""

    records: list[Record] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    flags: list[list[str]] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    def add(
        self, record: Record, number: int, flags: list[str], dialect: Dialect, place: str
    ) -> None:
        """The rows of one record as the dialect takes it apart; `place` is its own alone."""
        if dialect.unfold is None:
            self._append(record, number, flags)
            return
        for row in dialect.unfold({**record, PLACE: place}):
            if row.keys() == {SKIPPED}:
                self.notes[str(row[SKIPPED])] += 1
                continue
            flat = {name: value for name, value in row.items() if name not in (PLACE, "_flags")}
            self._append(flat, number, [*flags, *_told(row.get("_flags"))])

    def _append(self, record: Record, number: int, flags: list[str]) -> None:
        self.records.append(record)
        self.numbers.append(number)
        self.flags.append(flags)


def flat_rows(chunk: Chunk, dialect: Dialect, path: Path, reading: Reading) -> FlatRecords:
    """The rows of a chunk."""
    rows = FlatRecords()
    for record, number, flags in zip(chunk.records, chunk.numbers, chunk.flags, strict=True):
        place = f"{path}:{number}"
        for among, row in enumerate(_shaped(record, number, path, reading)):
            rows.add(row, number, flags, dialect, f"{place}.{among}" if among else place)
    return rows


def row_names(chunk: Chunk, path: Path, reading: Reading) -> list[str]:
    """The names that the records of a chunk have as rows, under the names asked for."""
    names: dict[str, None] = {}
    for record, number in zip(chunk.records, chunk.numbers, strict=True):
        for row in _shaped(record, number, path, reading):
            names |= dict.fromkeys(row)
    return list(names)


def renamed(record: dict[str, _Value], path: Path | str, reading: Reading) -> dict[str, _Value]:
    """A record under the names that `--map` gives.

    Raises:
        UsageError: the new name is that of another column.
    """
    names = {old: new for new, old in reading.names.items() if old in record and old != new}
    if not names:
        return record
    for old, new in names.items():
        if new in record and new not in names:
            raise UsageError(f"--map {new}={old}: {path} has a column {new} already")
    return {names.get(name, name): value for name, value in record.items()}


def _told(flags: object) -> list[str]:
    """The flags that a dialect gave a row, or that the record had under their name."""
    if flags is None:
        return []
    if isinstance(flags, list) and all(isinstance(flag, str) for flag in flags):
        return flags
    return ["bad_flags"]


def _shaped(record: Record, number: int, path: Path, reading: Reading) -> list[Record]:
    try:
        rows = list(rows_of(renamed(record, path, reading)))
    except ValueError as error:
        raise DumpError(f"{path}: row {number} {error}; write it again") from error
    return [renamed(row, path, reading) for row in rows] if reading.names else rows
