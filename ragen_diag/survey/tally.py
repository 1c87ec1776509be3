"""The batches of a dump, read once -> narrow keys of all rows, counts, and a sample of the texts.

Texts go by and are not kept, so that tens of millions of rows fit into memory. Judges nothing.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from ragen_diag.dumps.dump import Dump
from ragen_diag.dumps.keys import KEY_COLUMNS, row_keys
from ragen_diag.dumps.ledger import Ledger
from ragen_diag.dumps.source import Batch
from ragen_diag.errors import DumpError
from ragen_diag.survey.sample import Drawn

NEEDED = frozenset({*KEY_COLUMNS, "finish_reason", "advantage", "reward_components"})


class Observer(Protocol):
    """Who is told how far the reading is."""

    def read(self, rows: int, file: int, files: int) -> None:
        """`rows` so far; `file` of `files` is being read, from 1."""


class Silent:
    """An observer that says nothing."""

    def read(self, rows: int, file: int, files: int) -> None:
        """Nothing."""


@dataclass
class Tally:
    """Sums over all batches so far; lists go by the place of the file in the dump."""

    drawn: Drawn
    rows: list[int]
    columns: list[dict[str, None]]
    """Columns of each file that hold a value."""
    ledger: Ledger = field(default_factory=Ledger)
    keys: list[pl.DataFrame] = field(default_factory=list)
    finish_reasons: Counter[str] = field(default_factory=Counter)
    components: Counter[tuple[int | None, str]] = field(default_factory=Counter)
    """Step and name of a component of the reward -> rows that have it."""
    reward_name: str | None = None
    broken: list[DumpError] = field(default_factory=list)
    """Why files were not read to their end."""

    def add(self, path: str, place: int, batch: Batch) -> None:
        """Take a batch into account."""
        table = batch.table
        self.ledger.add(path, batch)
        self.rows[place] += table.height
        self.columns[place] |= dict.fromkeys(batch.columns)
        if not table.height:
            return
        self.keys.append(row_keys(table, place, named=False))
        self.drawn.add(table)
        self.finish_reasons.update(dict(table["finish_reason"].value_counts().rows()))
        self._components(table)
        if self.reward_name is None and batch.reward is not None and batch.candidates:
            # The dialect's own column stands first.
            self.reward_name = batch.candidates[0]

    def _components(self, table: pl.DataFrame) -> None:
        if not table["reward_components"].list.len().sum():
            return
        named = (
            table.select("step", "reward_components")
            .explode("reward_components")
            .unnest("reward_components")
            .drop_nulls("value")
            .group_by("step", "key")
            .len()
        )
        self.components.update({(step, key): rows for step, key, rows in named.iter_rows()})


def read_through(dump: Dump, observer: Observer) -> Tally:
    """All rows of a dump. A file that breaks off is kept as far as it goes."""
    files = len(dump.sources)
    tally = Tally(
        drawn=Drawn(dump.reading.split), rows=[0] * files, columns=[{} for _ in range(files)]
    )
    for place, source in enumerate(dump.sources):
        try:
            for batch in source.batches(NEEDED):
                tally.add(str(source.file.path), place, batch)
                observer.read(tally.ledger.rows, place + 1, files)
        except DumpError as error:
            tally.broken.append(error)
    tally.ledger.notes.update(dump.notes)
    return tally
