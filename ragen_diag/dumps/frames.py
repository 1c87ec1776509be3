"""Parquet, Arrow and CSV files -> tables, batch by batch, with the columns that are needed.

Knows file formats, no dialects: what a column means is decided elsewhere. Only a batch is held in
memory, and of a Parquet file about a row group.
"""

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
from polars.selectors import by_name

from ragen_diag.dumps.streams import Container, is_packed, unpacked
from ragen_diag.errors import DumpError

BATCH_ROWS = 1 << 18
BATCH_BYTES = 32 << 20
_FEWEST_ROWS = 64
_BUFFER = 1 << 20
CHECKED = b"ragen-diag.rows"
"""Key in the metadata of a converted file, under which `checked_rows` is kept."""

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
        if isinstance(path, str) or container == "csv":
            frame = pl.DataFrame(schema=_lazy(path, container).collect_schema())
        else:
            schema = _parquet(path).schema_arrow if container == "parquet" else _arrow(path).schema
            _require_known(path, schema)
            frame = _frame(schema.empty_table())
    except _BROKEN as error:
        raise _unreadable(path, container, error) from error
    return frame[[name for name in frame.columns if not name.startswith(_INDEX)]]


def frame_batches(
    path: Path | str, container: Container, columns: Sequence[str]
) -> Iterator[pl.DataFrame]:
    """The rows of a file in order, with `columns` alone, in batches of at most BATCH_ROWS or so.

    Raises:
        DumpError: the file cannot be decoded, for example because its end is missing, or a page
            has another checksum than was written.
    """
    try:
        if isinstance(path, str) or container == "csv":
            yield from _batches(_lazy(path, container).select(by_name(*columns)))
        elif container == "parquet":
            yield from _one_ahead(_parquet_batches(path, columns))
        else:
            yield from _arrow_batches(path, columns)
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
    source = _opened(path) if isinstance(path, Path) and is_packed(path) else path
    if container == "parquet":
        # The path is literal: no globbing, and no column is invented from a `key=value` folder.
        return pl.scan_parquet(source, glob=False, hive_partitioning=False)
    separator = "\t" if ".tsv" in str(path).lower().rpartition("/")[2] else ","
    # Every cell is text until its meaning is known: "0.5" after a thousand 1s is no error.
    return pl.scan_csv(
        source,
        separator=separator,
        infer_schema=False,
        glob=False,
        encoding="utf8-lossy",
        low_memory=True,
    )


def _batches(lazy: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    yield from lazy.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True, lazy=True)


def _opened(path: Path) -> IO[bytes]:
    with unpacked(path) as stream:
        return io.BytesIO(stream.read())


def _frame(table: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    # A column without a name is given one, which is not that of the file.
    frame.columns = table.schema.names
    return frame


def _require_known(path: Path, schema: pa.Schema) -> None:
    for column in schema:
        odd = _unknown_type(column.type)
        if odd is not None:
            raise DumpError(
                f"{path}: column {column.name!r} is of type {odd}, which is not read; leave it out"
                " or write it as text"
            )


def _unknown_type(dtype: pa.DataType) -> pa.DataType | None:
    """A type, or one inside it, that the table engine has no counterpart for, and panics at."""
    inner = [dtype.field(i) for i in range(dtype.num_fields)]
    if (
        pa.types.is_decimal256(dtype)
        or pa.types.is_interval(dtype)
        or pa.types.is_union(dtype)
        or pa.types.is_list_view(dtype)
        or pa.types.is_large_list_view(dtype)
        or (pa.types.is_fixed_size_list(dtype) and dtype.list_size == 0)
        or len({field.name for field in inner}) < len(inner)
    ):
        return dtype
    nested = [field.type for field in inner]
    if isinstance(dtype, pa.DictionaryType):
        nested.append(dtype.value_type)
    if isinstance(dtype, pa.BaseExtensionType):
        nested.append(dtype.storage_type)
    return next((odd for one in nested if (odd := _unknown_type(one)) is not None), None)


def _parquet(path: Path) -> pq.ParquetFile:
    """By the engine that survives damaged files and compares pages with their checksums.

    Buffered and not read ahead, so that a row group is never held as a whole.
    """
    source = _opened(path) if is_packed(path) else path
    return pq.ParquetFile(
        source, page_checksum_verification=True, buffer_size=_BUFFER, pre_buffer=False
    )


def _parquet_batches(path: Path, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    file = _parquet(path)
    written = (file.schema_arrow.metadata or {}).get(CHECKED)
    rows = 0
    try:
        for batch in file.iter_batches(_batch_rows(file.metadata), columns=list(columns)):
            rows += batch.num_rows
            # Nothing else checks that texts are UTF-8.
            batch.validate(full=True)
            yield _frame(batch)[list(columns)]
    except pa.ArrowNotImplementedError:
        # Nested columns beyond 2 GiB in a row group; only the other engine reads them.
        if rows:
            raise
        yield from _batches(_lazy(path, "parquet").select(by_name(*columns)))
        return
    if written is not None and written != checked_rows(rows, file.schema_arrow.names):
        raise ValueError("rows or columns are missing or have other names than were written")


def _one_ahead(batches: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The batches, each read while the one before it is worked on."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Rows of a batch that hold about BATCH_BYTES.

    By whole rows: what the file says of single columns ends the process if it is damaged.
    """
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    rows = int(BATCH_BYTES / max(size / max(metadata.num_rows, 1), 1))
    return min(BATCH_ROWS, max(_FEWEST_ROWS, rows))


def _arrow(path: Path) -> pa.RecordBatchReader:
    """An Arrow file or stream as a stream of its batches."""
    source = _opened(path) if is_packed(path) else pa.memory_map(str(path))
    head = source.read(6)
    source.seek(0)
    if head.startswith(b"FEA1"):
        table = pa.feather.read_table(source)
        return table.to_reader()
    if head != b"ARROW1":
        return pa.ipc.open_stream(source)
    file = pa.ipc.open_file(source)
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    return pa.RecordBatchReader.from_batches(file.schema, batches)


def _arrow_batches(path: Path, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    for batch in _arrow(path):
        # Bytes are taken as they lie there; what they say of their own places must be checked.
        batch.validate(full=True)
        whole = _frame(batch.select(list(columns)))
        yield from whole.iter_slices(BATCH_ROWS)


def checked_rows(rows: int, columns: Sequence[str]) -> bytes:
    """What a converted file says of its own size: what no checksum of a page covers."""
    return f"{rows} {' '.join(columns)}".encode()


def _unreadable(path: Path | str, container: Container, error: BaseException) -> DumpError:
    name = {"parquet": "Parquet", "arrow": "Arrow", "csv": "CSV"}.get(container, container)
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(path, str):
        return DumpError(
            f"{path}: cannot be read as {name} ({reason[:200]}); check the address and the"
            " credentials, or download the file first"
        )
    return DumpError(
        f"{path}: cannot be read as {name} ({reason[:200]}); was the writer interrupted? write the"
        " file again or leave it out"
    )
