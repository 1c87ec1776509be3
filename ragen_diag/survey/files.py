"""The files of a dump side by side: rows, row groups, and columns that some of them lack."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from ragen_diag.dumps.dump import Dump
from ragen_diag.dumps.frames import row_groups
from ragen_diag.dumps.source import Source
from ragen_diag.dumps.streams import is_packed
from ragen_diag.errors import DumpError
from ragen_diag.survey.facts import Absence, File, Problem, RowGroups, problem
from ragen_diag.survey.tally import Tally

LARGE_ROW_GROUP = 1 << 30
"""Uncompressed bytes of a row group, which is held in memory whole while it is read."""
TABLE_LIMITS = (10_000, 200_000)
"""Rows at which W&B cuts a table off, by default and at most."""
_LISTED = 20
_FIELDS = ("group", "sample", "trajectory", "prompt", "truth", "response")
"""Keys of a row, and what they are called where they are told."""
_NAMES = {"group": "group_id", "sample": "sample_id", "truth": "ground_truth"}


def file_facts(dump: Dump, tally: Tally) -> tuple[File, ...]:
    """One entry per file, in the order of the dump."""
    return tuple(
        File(
            path=str(source.file.path),
            container=source.container,
            rows=rows,
            row_groups=_row_groups(source),
        )
        for source, rows in zip(dump.sources, tally.rows, strict=True)
    )


def file_problems(files: Sequence[File]) -> list[Problem]:
    """Files that take much memory, and tables that were cut off."""
    found = []
    large = [f for f in files if f.row_groups and f.row_groups.most_bytes > LARGE_ROW_GROUP]
    if large:
        first = large[0].row_groups
        assert first is not None
        found.append(
            problem(
                "large_row_group",
                "warning",
                f"{large[0].path}: a row group of {first.most_rows:,} rows takes"
                f" {first.most_bytes / 2**30:.1f} GiB, and reading it about as much memory; write"
                " the file again with smaller ones (row_group_size)",
                [file.path for file in large],
            )
        )
    cut = [f for f in files if f.path.endswith(".table.json") and f.rows in TABLE_LIMITS]
    if cut:
        found.append(
            problem(
                "table_cut",
                "warning",
                f"{cut[0].path}: exactly {cut[0].rows:,} rows, at which W&B cuts tables off; rows"
                " are missing: log smaller tables, or write the rollouts to files",
                [file.path for file in cut],
            )
        )
    return found


def absences(dump: Dump, tally: Tally, keys: pl.DataFrame) -> tuple[Absence, ...]:
    """What some files or steps lack and others have: columns, fields, components of the reward."""
    read = set().union(*tally.columns)
    columns = [
        set(there) | (_declared(source) - read)
        for source, there in zip(dump.sources, tally.columns, strict=True)
    ]
    files = [str(file) for file in dump.files]
    by_file = dict(zip(files, columns, strict=True))
    told = [a for name in sorted(set().union(*columns)) if (a := _by(name, "file", by_file))]
    known = {absence.name for absence in told}
    # Files mostly are steps; within a file, steps are told apart by their rows.
    fields = _FIELDS if len(dump.sources) == 1 else ()
    by_step = _by_step(tally, keys, fields)
    names = sorted(set().union(*by_step.values()) - known)
    return (*told, *(a for name in names if (a := _by(name, "step", by_step))))


def absence_problems(found: Sequence[Absence], rewards: Sequence[str]) -> list[Problem]:
    """A reward that some lack changes numbers; other columns are told in one line."""
    problems = []
    plain = [absence for absence in found if absence.name not in rewards]
    for absence in found:
        if absence.name in rewards:
            problems.append(
                problem(
                    "reward_column_missing",
                    "warning",
                    f"{_told(absence)}; steps with and without it are not comparable in it",
                    absence.absent_in,
                )
            )
    if plain:
        more = f"; so do {len(plain) - 1} more columns" if len(plain) > 1 else ""
        problems.append(
            problem("columns_differ", "note", f"{_told(plain[0])}{more}", plain[0].absent_in)
        )
    return problems


def _told(absence: Absence) -> str:
    total = absence.present + absence.absent
    return (
        f"{absence.name} holds values in {absence.present:,} of {total:,} {absence.of}s only, and"
        f" not in {absence.of} {absence.absent_in[0]}"
    )


def _by(name: str, of: str, there: dict[str, set[str]]) -> Absence | None:
    absent = [place for place, names in there.items() if name not in names]
    if not absent or len(absent) == len(there):
        return None
    return Absence(
        name=name,
        of="file" if of == "file" else "step",
        present=len(there) - len(absent),
        absent=len(absent),
        absent_in=tuple(absent[:_LISTED]),
    )


def _by_step(tally: Tally, keys: pl.DataFrame, fields: Sequence[str]) -> dict[str, set[str]]:
    """Step -> those of the fields that it holds, and its components of the reward."""
    partly = [name for name in fields if 0 < keys[name].null_count() < keys.height]
    filled = keys.group_by("step").agg(pl.col(partly).count()).sort("step", nulls_last=True)
    there: dict[str, set[str]] = {
        str(row["step"]): {_NAMES.get(name, name) for name in partly if row[name]}
        for row in filled.iter_rows(named=True)
    }
    for step, name in tally.components:
        there.setdefault(str(step), set()).add(name)
    return there


def _declared(source: Source) -> set[str]:
    """The columns of a table, which need not all have been read, and need not hold values."""
    return set() if source.schema is None else set(source.schema.columns)


def _row_groups(source: Source) -> RowGroups | None:
    path = source.file.path
    if source.container != "parquet" or not isinstance(path, Path):
        return None
    try:
        groups = [] if is_packed(path) else row_groups(path)
    except (DumpError, OSError):
        # What is wrong with the file was told when its rows were read.
        return None
    if not groups:
        return None
    return RowGroups(
        number=len(groups),
        most_rows=max(rows for rows, _ in groups),
        most_bytes=max(size for _, size in groups),
    )
