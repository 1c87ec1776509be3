"""Chunks of records -> flat records, one per row: shapes undone, episodes taken apart.

Knows dialects only by their `unfold`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ragen_diag.dumps.dialect import INDEX, SKIPPED, Dialect, Record
from ragen_diag.dumps.records import Chunk
from ragen_diag.dumps.shapes import rows_of
from ragen_diag.errors import UsageError
from ragen_diag.settings import Reading

_Value = TypeVar("_Value")


@dataclass
class Rows:
    """Flat records with the number and flags of the record that each came from."""

    records: list[Record] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    flags: list[list[str]] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record, number: int, flags: list[str], dialect: Dialect) -> None:
        """The rows of one record as the dialect takes it apart."""
        if dialect.unfold is None:
            self._append(record, number, flags)
            return
        for row in dialect.unfold({**record, INDEX: number - 1}):
            if SKIPPED in row:
                self.notes[str(row[SKIPPED])] += 1
                continue
            flat = {name: value for name, value in row.items() if name not in (INDEX, "_flags")}
            self._append(flat, number, [*flags, *(row.get("_flags") or ())])

    def _append(self, record: Record, number: int, flags: list[str]) -> None:
        self.records.append(record)
        self.rows.append(number)
        self.flags.append(flags)


def flat_rows(chunk: Chunk, dialect: Dialect, path: Path, reading: Reading) -> Rows:
    """The rows of a chunk."""
    rows = Rows()
    for record, number, flags in zip(chunk.records, chunk.rows, chunk.flags, strict=True):
        for row in _shaped(record, path, reading):
            rows.add(row, number, flags, dialect)
    return rows


def row_names(chunk: Chunk, path: Path, reading: Reading) -> list[str]:
    """The names that the records of a chunk have as rows, under the names asked for."""
    rows = (row for record in chunk.records for row in _shaped(record, path, reading))
    return list({name: None for row in rows for name in row})


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


def _shaped(record: Record, path: Path, reading: Reading) -> Iterator[Record]:
    for row in rows_of(renamed(record, path, reading)):
        yield renamed(row, path, reading)
