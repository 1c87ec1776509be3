"""A dump: all its files, opened, and the canonical table that they make together.

Texts are held one batch at a time, unless the whole table is asked for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from ragen_diag.dumps.decisions import Decided, decide
from ragen_diag.dumps.dialect import Dialect
from ragen_diag.dumps.dialects import DIALECTS, GENERIC
from ragen_diag.dumps.files import digest, find_files, refuse_copies
from ragen_diag.dumps.grouping import Numbers
from ragen_diag.dumps.keys import joined, row_keys
from ragen_diag.dumps.ledger import Ledger
from ragen_diag.dumps.recognition import UnknownDialect
from ragen_diag.dumps.source import Batch, Source, open_source
from ragen_diag.dumps.streams import EmptyFile
from ragen_diag.errors import DumpError
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import Reading

_SHOWN = 60


@dataclass(frozen=True)
class Dump:
    """The files of one dump, all of one dialect."""

    paths: tuple[str, ...]
    sources: tuple[Source, ...]
    reading: Reading
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """File of a folder that is no dump -> why."""

    @property
    def dialect(self) -> Dialect:
        """How all files are written."""
        return self.sources[0].dialect

    @property
    def files(self) -> list[Path | str]:
        """Their paths, by which keys know their file."""
        return [source.file.path for source in self.sources]

    def batches(self, needed: frozenset[str] | None = None) -> Iterator[tuple[int, Batch]]:
        """All rows in order, with the place of their file; see `Source.batches`."""
        for place, source in enumerate(self.sources):
            for batch in source.batches(needed):
                yield place, batch

    def rollouts(self) -> Rollouts:
        """The whole canonical table.

        Raises:
            DumpError: see `read_dump`.
        """
        batches = list(self.batches())
        decided, numbers, notes = self.settled(batches)
        table = pl.concat([batch.table for _, batch in batches])
        return Rollouts(
            table=decided.applied(table, numbers, before=0, kept=0),
            dialect=self.dialect.name,
            paths=self.paths,
            sha256=digest(source.file for source in self.sources),
            notes=notes,
            written_again=tuple(sorted({twice.step for twice in decided.again})),
        )

    def settled(
        self, batches: Iterable[tuple[int, Batch]]
    ) -> tuple[Decided, Numbers, dict[str, int]]:
        """What becomes of the rows of all batches, the numbers for their ids, and what was met.

        Raises:
            DumpError: as `decide` and `refuse_mixed_groups`.
        """
        ledger, keys = Ledger(Counter(self.notes)), []
        for place, batch in batches:
            ledger.add(str(self.files[place]), batch)
            keys.append(row_keys(batch.table, place))
        decided = self.decide(keys, ledger)
        self.refuse_mixed_groups(decided)
        numbers = decided.numbered()
        notes = ledger.notes + Counter(decided.notes) + Counter(numbers.notes)
        return decided, numbers, dict(sorted(notes.items()))

    @property
    def notes(self) -> dict[str, int]:
        """ "file_passed_over": files of a folder that are no dump."""
        return {"file_passed_over": len(self.passed_over)} if self.passed_over else {}

    def decide(self, keys: Sequence[pl.DataFrame], ledger: Ledger) -> Decided:
        """What becomes of the rows, once the keys of all batches are there.

        Raises:
            DumpError: no rows, no reward, or a step that was written twice.
        """
        if not ledger.rows:
            raise DumpError(f"{self.files[0]}: the dump holds no rows; name a file that does")
        ledger.require_reward(str(self.files[0]), self.reading)
        return decide(joined(keys), self.dialect, self.files, self.reading)

    def refuse_mixed_groups(self, decided: Decided) -> None:
        """Raises:
        DumpError: one id names the groups of several prompts.
        """
        keys, clash = decided.keys, decided.grouping.clash
        if clash is None:
            return
        places = [(keys["file"][at], keys["row"][at]) for at in (clash.first, clash.second)]
        one, other = (self._row(place, row) for place, row in places)
        files = [self.files[place] for place, _ in places]
        texts = [str(row["prompt"]) for row in (one, other)]
        grows = texts[0].startswith(texts[1]) or texts[1].startswith(texts[0])
        turns = (
            "the prompts grow, so these look like turns of one trajectory, which need"
            if grows
            else "if these are turns of one trajectory, they need"
        )
        raise DumpError(
            f"{files[0]}: group_id {one['group_id'][:_SHOWN]!r} has several prompts, in row"
            f" {places[0][1]} and in row {places[1][1]} of {files[1]}; give every prompt an id of"
            f" its own or leave group_id out; {turns} trajectory_id and turn"
        )

    def _row(self, place: int, number: int) -> dict[str, Any]:
        """One row of a file, by its number."""
        for batch in self.sources[place].batches():
            found = batch.table.filter(pl.col("_row") == number)
            if found.height:
                return found.row(0, named=True)
        raise AssertionError(f"row {number} was there before")


def open_dump(paths: Sequence[str | Path], reading: Reading) -> Dump:
    """Open every file behind `paths`; in folders, files that are no dumps are passed over.

    Raises:
        DumpError: a path leads nowhere, a file cannot be read or is of no known dialect, files
            are of different dialects or copies of each other.
        UsageError: a name in `reading` is none.
    """
    sources: dict[Path | str, Source] = {}
    passed_over: dict[str, str] = {}
    for given in paths:
        for source in _sources(given, reading, passed_over):
            path = source.file.path
            sources.setdefault(path.resolve() if isinstance(path, Path) else path, source)
    if not sources:
        raise DumpError("no dump given; name a dump file, or a folder of them")
    found = tuple(sources.values())
    _refuse_mixture(found)
    refuse_copies(source.file for source in found)
    return Dump(tuple(str(path) for path in paths), found, reading, passed_over)


def _sources(given: str | Path, reading: Reading, passed_over: dict[str, str]) -> list[Source]:
    """The dumps behind one path, of the first tier of files that has any."""
    refused: dict[str, str] = {}
    for files in find_files(given):
        found = []
        for file in files:
            try:
                found.append(open_source(file, reading, DIALECTS, GENERIC))
            except (UnknownDialect, EmptyFile) as error:
                if file.named:
                    raise
                refused[str(file.path)] = str(error).removeprefix(f"{file.path}: ")
        if found:
            passed_over |= {path: why for path, why in refused.items() if _of_interest(path, found)}
            return found
    if refused:
        path, why = next(iter(refused.items()))
        raise DumpError(f"{given}: none of its {len(refused)} files is a dump; {path}: {why}")
    raise DumpError(
        f"{given}: the folder holds no dump (.parquet, .jsonl, ...); name the folder of the"
        " rollouts"
    )


def _of_interest(path: str, found: Sequence[Source]) -> bool:
    """Whether a file could be mistaken for a dump of the same kind."""
    return any(Path(path).suffix == Path(source.file.path).suffix for source in found)


def _refuse_mixture(sources: Sequence[Source]) -> None:
    first = {source.dialect.name: source.file.path for source in reversed(sources)}
    if len(first) > 1:
        where = ", ".join(f"{name} ({path})" for name, path in reversed(first.items()))
        raise DumpError(
            f"files of different dialects: {where}; read them one dialect at a time, or name the"
            " dialect with --dialect"
        )
