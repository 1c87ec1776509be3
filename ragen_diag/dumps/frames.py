"""Parquet, Arrow and CSV files -> tables, batch by batch, with the columns that are needed.

Knows file formats, no dialects: what a column means is decided elsewhere. Only a batch is held in
memory, and of a Parquet file about a row group.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ragen_diag.dumps.streams import Container, is_packed, unpacked
from ragen_diag.errors import DumpError

BATCH_ROWS = 1 << 17
CHECKED = b"ragen-diag.page-checksums"
"""Key in a Parquet file's metadata that says that every page has a checksum."""

_INDEX = "__index_level_"
_BROKEN = (
    pl.exceptions.PolarsError,
    # Not an `Exception`: what the Rust side does not expect in a damaged file.
    pl.exceptions.PanicException,
    pa.ArrowException,
    OSError,
    ValueError,
)


def empty_frame(path: Path | str, container: Container) -> pl.DataFrame:
    """The columns of a file, without rows and without those of an index that pandas adds.

    Raises:
        DumpError: the file cannot be decoded.
    """
    try:
        schema = _lazy(path, container).collect_schema()
    except _BROKEN as error:
        raise _unreadable(path, container, error) from error
    return pl.DataFrame(
        schema={name: dtype for name, dtype in schema.items() if not name.startswith(_INDEX)}
    )


def frame_batches(
    path: Path | str, container: Container, columns: Sequence[str]
) -> Iterator[pl.DataFrame]:
    """The rows of a file in order, with `columns` alone, in batches of at most BATCH_ROWS or so.

    Raises:
        DumpError: the file cannot be decoded, for example because its end is missing.
    """
    try:
        if isinstance(path, Path) and container == "parquet" and _has_checksums(path):
            yield from _checked_batches(path, columns)
            return
        lazy = _lazy(path, container).select(columns)
        yield from lazy.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True, lazy=True)
    except _BROKEN as error:
        raise _unreadable(path, container, error) from error


def row_groups(path: Path) -> list[tuple[int, int]]:
    """Rows and uncompressed bytes of every row group of a Parquet file."""
    try:
        metadata = pq.ParquetFile(path).metadata
    except _BROKEN as error:
        raise _unreadable(path, "parquet", error) from error
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [(group.num_rows, group.total_byte_size) for group in groups]


def _lazy(path: Path | str, container: Container) -> pl.LazyFrame:
    source: Path | str | IO[bytes] = path
    if isinstance(path, Path) and (is_packed(path) or container == "arrow"):
        source = _opened(path)
    if container == "parquet":
        # The path is literal: no globbing, and no column is invented from a `key=value` folder.
        return pl.scan_parquet(source, glob=False, hive_partitioning=False)
    if container == "arrow":
        assert not isinstance(source, Path | str)
        return _arrow(source)
    separator = "\t" if ".tsv" in str(path).lower() else ","
    # Every cell is text until its meaning is known: "0.5" after a thousand 1s is no error.
    return pl.scan_csv(
        source,
        separator=separator,
        infer_schema=False,
        glob=False,
        encoding="utf8-lossy",
        low_memory=True,
    )


def _opened(path: Path) -> IO[bytes]:
    with unpacked(path) as stream:
        return io.BytesIO(stream.read())


def _arrow(stream: IO[bytes]) -> pl.LazyFrame:
    head = stream.read(6)
    stream.seek(0)
    read = pl.read_ipc if head == b"ARROW1" or head.startswith(b"FEA1") else pl.read_ipc_stream
    return read(stream).lazy()


def _has_checksums(path: Path) -> bool:
    return CHECKED in (pq.read_metadata(path).metadata or {})


def _checked_batches(path: Path, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """By the engine that compares the pages with their checksums."""
    file = pq.ParquetFile(path, page_checksum_verification=True)
    for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        yield frame.select(columns)


def _unreadable(path: Path | str, container: Container, error: BaseException) -> DumpError:
    name = {"parquet": "Parquet", "arrow": "Arrow", "csv": "CSV"}.get(container, container)
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return DumpError(
        f"{path}: cannot be read as {name} ({reason[:200]}); was the writer interrupted? write the"
        " file again or leave it out"
    )
