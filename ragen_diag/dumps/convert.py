"""A dump of any dialect -> one Parquet file with the canonical table, batch by batch.

The dump is read twice: what only all of its rows tell (groups, repeats) comes first. Every page of
the file has a checksum, so that damage is found and never read as data.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ragen_diag.dumps.dump import Dump, open_dump
from ragen_diag.dumps.frames import CHECKED, checked_rows
from ragen_diag.errors import UsageError
from ragen_diag.rollouts import SCHEMA
from ragen_diag.settings import Reading


@dataclass(frozen=True)
class Converted:
    """What was written: rows, the dialect they came from, and notes as in `Rollouts`."""

    path: Path
    dialect: str
    rows: int
    left_out: int
    notes: dict[str, int]


def convert(
    paths: Sequence[str | Path], out: Path, *, reading: Reading | None = None, force: bool = False
) -> Converted:
    """Write the table that `read_dump` gives to `out`, which reads back to the same table.

    The file appears whole or not at all; one that is there is replaced only if `force` is set.

    Raises:
        UsageError: `out` is there already, one of the dump's files, or cannot be written.
        DumpError: see `read_dump`.
    """
    dump = open_dump(paths, reading or Reading())
    _require_free(out, dump, force)
    decided, numbers, notes = dump.settled(dump.batches())
    part = out.with_name(f".{out.name}.part")
    before = kept = 0
    try:
        with pq.ParquetWriter(
            part, _arrow_schema(decided.keys.height), compression="zstd", write_page_checksum=True
        ) as writer:
            for _, batch in dump.batches():
                table = decided.applied(batch.table, numbers, before=before, kept=kept)
                before, kept = before + batch.table.height, kept + table.height
                if table.height:
                    writer.write_table(_arrow(table))
        os.replace(part, out)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    return Converted(out, dump.dialect.name, kept, before - kept, notes)


def _require_free(out: Path, dump: Dump, force: bool) -> None:
    try:
        whole = out.resolve()
        if any(isinstance(f, Path) and f.resolve() == whole for f in dump.files):
            raise UsageError(f"{out}: is part of the dump itself; give another name")
        if whole.is_dir():
            raise UsageError(f"{out}: is a folder; give the name of a file, such as run.parquet")
        if whole.exists() and not whole.is_file():
            raise UsageError(f"{out}: is no regular file; give another name")
        if not out.absolute().parent.is_dir():
            raise UsageError(f"{out}: there is no such folder; make it first")
        if os.path.lexists(out) and not force:
            raise UsageError(
                f"{out}: is there already; give another name, or --force to replace it"
            )
    except (OSError, RuntimeError) as error:
        # The name is too long, or a link leads back to itself.
        raise UsageError(f"{out}: cannot be written ({error}); give another name") from error


def _arrow_schema(rows: int) -> pa.Schema:
    schema = _arrow(pl.DataFrame(schema=dict(SCHEMA))).schema
    return schema.with_metadata({CHECKED: checked_rows(rows, schema.names)})


def _arrow(table: pl.DataFrame) -> pa.Table:
    # The oldest form, which every reader of Parquet's Arrow schema knows.
    return table.to_arrow(compat_level=pl.CompatLevel.oldest())
