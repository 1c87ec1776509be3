"""One dump file, opened: its dialect, and its rows in canonical form, batch by batch.

The one place that knows how containers, shapes, dialects and assembly follow each other. A source
can be read again: what must see the whole dump first reads it twice.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from ragen_diag.dumps.assembly import assemble
from ragen_diag.dumps.chats import with_turns
from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.files import DumpFile
from ragen_diag.dumps.frames import empty_frame, frame_batches
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.recognition import Recognised, recognise
from ragen_diag.dumps.records import line_notes, record_chunks
from ragen_diag.dumps.rewards import Reward, candidates, choose_reward
from ragen_diag.dumps.rows import FlatRecords, flat_rows, renamed, row_names
from ragen_diag.dumps.streams import Container, container_of
from ragen_diag.dumps.typed import Kind, json_columns, kinds_of, merged, mixed_columns, typed
from ragen_diag.errors import DumpError
from ragen_diag.rollouts import SCHEMA
from ragen_diag.settings import Reading

_FLAGS = pl.List(pl.String)
TABLES: tuple[Container, ...] = ("parquet", "arrow", "csv")


@dataclass(frozen=True)
class Batch:
    """Consecutive rows in canonical form, and what was met beside the rows."""

    table: pl.DataFrame
    reward: Reward | None
    """None where the batch has no reward column."""
    candidates: tuple[str, ...]
    """Names that could be the reward."""
    columns: tuple[str, ...]
    """Names of the file's columns that hold a value."""
    notes: Mapping[str, int]
    lost: tuple[str, ...] = ()
    """What is wrong with lines that hold no row, as "line 7 is not JSON"."""


@dataclass(frozen=True)
class Source:
    """A dump file whose dialect is known."""

    file: DumpFile
    container: Container
    recognised: Recognised
    reading: Reading
    schema: pl.DataFrame | None = None
    """The columns of a table file, without rows."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """How the columns of records are held."""

    @property
    def dialect(self) -> Dialect:
        """How the file is written."""
        return self.recognised.dialect

    def batches(self, needed: frozenset[str] | None = None) -> Iterator[Batch]:
        """The rows in order, as written. `needed` names the canonical columns that will be looked
        at: of a table nothing else is read.

        Raises:
            DumpError: the file is damaged; no line is readable, or too many are not.
        """
        for raw, lost in self._from_table(needed) if self.schema is not None else self._records():
            draft = self._draft(raw)
            if self.dialect.unfold is None:
                raw, draft = with_turns(raw, draft)
            reward = choose_reward(raw, draft, self.reading)
            # A W&B table is named after the time of logging, and may hold all steps before it.
            named = self.dialect.file_names_step and not self.file.name.endswith(".table.json")
            table = assemble(raw, draft, reward, step_in_name=named)
            notes = Counter(raw.notes)
            notes.update(draft.notes)
            notes.update({} if reward is None else reward.notes)
            filled = tuple(c.name for c in raw.frame if c.null_count() < len(c))
            yield Batch(table, reward, candidates(raw, draft), filled, notes, lost)

    def _draft(self, raw: RawTable) -> Draft:
        """The dialect's draft, in which columns that were mapped by the user come first, and the
        dialect's own reward is kept beside another that was asked for."""
        draft = self.dialect.draft(raw)
        mapped = [n for n in self.reading.names if n in SCHEMA and n in raw.frame.columns]
        if mapped:
            columns = {name: raw.frame[name] for name in mapped if name != "reward"}
            draft = replace(
                draft,
                columns={**draft.columns, **columns},
                reward="reward" if "reward" in mapped else draft.reward,
                parts=tuple(name for name in draft.parts if name not in mapped),
                extra=tuple(name for name in draft.extra if name not in mapped),
            )
        asked = {name for name, _ in self.reading.rewards}
        if not asked or draft.reward is None or draft.reward in asked:
            return draft
        return replace(
            draft,
            extra=tuple(dict.fromkeys((*draft.extra, draft.reward))),
            notes={n: c for n, c in draft.notes.items() if not n.startswith("reward_named_")},
        )

    def _from_table(
        self, needed: frozenset[str] | None
    ) -> Iterator[tuple[RawTable, tuple[str, ...]]]:
        assert self.schema is not None
        names = self._wanted(needed)
        first = 1
        for frame in frame_batches(self.file.path, self.container, names):
            raw = _raw(self.file.path, frame.rename(self._names(names)), first)
            if self.container == "csv":
                raw = replace(raw, mixed_columns=frozenset(raw.frame.columns))
            first += frame.height
            yield self._unfolded(raw), ()

    def _records(self) -> Iterator[tuple[RawTable, tuple[str, ...]]]:
        path = Path(self.file.path)
        good, last, bad = 0, 0, dict[int, str]()
        for chunk in record_chunks(path, self.container):
            good, last = good + len(chunk.records), max(last, chunk.last)
            bad |= chunk.bad
            rows = flat_rows(chunk, self.dialect, path, self.reading)
            if rows.records or rows.notes or chunk.bad:
                lost = tuple(f"line {number} {what}" for number, what in chunk.bad.items())
                yield self._typed(rows), lost
        notes = line_notes(path, bad, last, good, self.reading.max_bad_share)
        if notes:
            yield self._typed(FlatRecords(notes=Counter(notes))), ()

    def _typed(self, rows: FlatRecords) -> RawTable:
        return RawTable(
            path=self.file.path,
            frame=typed(rows.records, self.kinds),
            row=pl.Series("_row", rows.numbers, dtype=pl.Int64),
            flags=_flags(rows.flags),
            json_columns=json_columns(self.kinds),
            mixed_columns=mixed_columns(self.kinds),
            notes=rows.notes,
        )

    def _unfolded(self, raw: RawTable) -> RawTable:
        """A table's rows as records, taken apart by the dialect if it does so."""
        if self.dialect.unfold is None:
            return raw
        rows = FlatRecords()
        for number, record in zip(raw.row, raw.frame.to_dicts(), strict=True):
            rows.add(record, number, [], self.dialect, f"{self.file.path}:{number}")
        return replace(self, kinds=kinds_of(rows.records))._typed(rows)

    def _names(self, columns: Sequence[str]) -> dict[str, str]:
        return {old: new for new, old in self.reading.names.items() if old in columns}

    def _wanted(self, needed: frozenset[str] | None) -> list[str]:
        """The columns of a table without those that are not needed."""
        assert self.schema is not None
        if needed is None or self.dialect.unfold is not None:
            return self.schema.columns
        frame = self.schema.rename(self._names(self.schema.columns))
        draft = self.dialect.draft(_raw(self.file.path, frame, 1))
        unneeded = _unneeded(draft, needed) - {name for name, _ in self.reading.rewards}
        old = {new: name for name, new in self._names(self.schema.columns).items()}
        return [n for n in self.schema.columns if n not in {old.get(u, u) for u in unneeded}]


def open_source(
    file: DumpFile, reading: Reading, dialects: Sequence[Dialect], fallback: Dialect
) -> Source:
    """A file with its dialect recognised by its columns.

    Raises:
        UnknownDialect: the file can be read, but is no dump.
        DumpError: the file is empty, refused, damaged or ambiguous.
    """
    path = file.path
    try:
        container = _container_of_remote(path) if isinstance(path, str) else container_of(path)
        if container in TABLES:
            schema = empty_frame(path, container)
            names = list(renamed(dict.fromkeys(schema.columns), path, reading))
            found = recognise(path, names, dialects, fallback, named=reading.dialect)
            return Source(file, container, found, reading, schema=schema)
        return _open_records(file, container, reading, dialects, fallback)
    except OSError as error:
        raise DumpError(
            f"{path}: cannot be opened ({error.strerror}); can you read it otherwise?"
        ) from error


def _container_of_remote(url: str) -> Container:
    if not url.partition("?")[0].endswith(".parquet"):
        raise DumpError(
            f"{url}: of remote files only Parquet is read, by its full name; download it first"
        )
    return "parquet"


def _open_records(
    file: DumpFile,
    container: Container,
    reading: Reading,
    dialects: Sequence[Dialect],
    fallback: Dialect,
) -> Source:
    path = Path(file.path)
    found: Recognised | None = None
    kinds: dict[str, Kind] = {}
    bad: dict[int, str] = {}
    last = 0
    for chunk in record_chunks(path, container):
        bad, last = bad | chunk.bad, max(last, chunk.last)
        if found is None and chunk.records:
            names = row_names(chunk, path, reading)
            found = recognise(path, names, dialects, fallback, named=reading.dialect)
        if found is not None:
            rows = flat_rows(chunk, found.dialect, path, reading)
            kinds = merged(kinds, kinds_of(rows.records)) if rows.records else kinds
    if found is None:
        line_notes(path, bad, last, 0, reading.max_bad_share)
        raise AssertionError("a file without records is an error of its lines")
    return Source(file, container, found, reading, kinds=kinds)


def _flags(flags: list[list[str]]) -> pl.Series:
    if any(flags):
        return pl.Series("_flags", flags, dtype=_FLAGS)
    return pl.Series("_flags", [[]], dtype=_FLAGS).new_from_index(0, len(flags))


def _raw(path: Path | str, frame: pl.DataFrame, first: int) -> RawTable:
    return RawTable(
        path=path,
        frame=frame,
        row=pl.int_range(first, first + frame.height, eager=True).alias("_row"),
        flags=_flags([[]] * frame.height),
    )


def _unneeded(draft: Draft, needed: frozenset[str]) -> set[str]:
    """Columns that are made into nothing that is needed; those of unknown use stay."""
    used = {column.name for name, column in draft.columns.items() if name in needed}
    unused = {column.name for name, column in draft.columns.items() if name not in needed}
    if "extra" not in needed:
        unused |= {*draft.extra}
    if "reward_components" not in needed:
        unused |= {*draft.parts} - {draft.reward, *draft.summed}
    return unused - used
