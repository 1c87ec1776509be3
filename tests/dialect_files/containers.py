"""The same canonical rows in every container: packed lines, CSV, Arrow, JSON, Parquet."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dialect_files.case import Case, Writer, put

ROWS: list[dict[str, Any]] = [
    {"prompt": "6 * 7?", "response": "007", "reward": 1.0, "group_id": "01", "step": 4},
    {"prompt": "6 * 7?", "response": "true", "reward": 0.0, "group_id": "01", "step": 4},
    {"prompt": "1e3", "response": 'say "a,\r\nb"', "reward": -0.5, "group_id": "1", "step": 4},
    {"prompt": "1e3", "response": "é 😀 \t", "reward": 2.0, "group_id": "1", "step": 4},
    {"prompt": "NA", "response": "NaN", "reward": 0.25, "group_id": "b", "step": 12},
]
"""Texts that look like numbers must stay texts, and ids that look equal must stay apart."""

BOM = "\ufeff".encode()


def jsonl(newline: str = "\n") -> bytes:
    """The rows as lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + newline for row in ROWS).encode()


def array() -> bytes:
    """The rows as one JSON document."""
    return json.dumps(ROWS, indent=1).encode()


def table() -> pa.Table:
    """The rows as columns."""
    return pa.table({name: [row[name] for row in ROWS] for name in ROWS[0]})


def comma(dialect: str = "excel") -> bytes:
    """The rows as CSV, as Python's own writer quotes them."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(ROWS[0]), dialect=dialect)
    writer.writeheader()
    writer.writerows(ROWS)
    return out.getvalue().encode()


def zstd(data: bytes) -> bytes:
    """A zstd frame."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def arrow(new: Callable[..., Any]) -> bytes:
    """Arrow's IPC file or stream."""
    sink = pa.BufferOutputStream()
    with new(sink, table().schema) as writer:
        writer.write_table(table(), max_chunksize=2)
    return bytes(sink.getvalue())


def parquet() -> bytes:
    """Two row groups."""
    sink = pa.BufferOutputStream()
    pq.write_table(table(), sink, row_group_size=3)
    return bytes(sink.getvalue())


PACKED: dict[str, Callable[[], bytes]] = {
    "plain.jsonl": jsonl,
    "plain.ndjson": jsonl,
    "no_final_newline.jsonl": lambda: jsonl().rstrip(b"\n"),
    "blank_lines.jsonl": lambda: jsonl("\n\n"),
    "crlf.jsonl": lambda: jsonl("\r\n"),
    "bom.jsonl": lambda: BOM + jsonl(),
    "bom_crlf.jsonl": lambda: BOM + jsonl("\r\n"),
    "lines.jsonl.gz": lambda: gzip.compress(jsonl()),
    "members.jsonl.gz": lambda: gzip.compress(jsonl()[:70]) + gzip.compress(jsonl()[70:]),
    "lines.jsonl.zst": lambda: zstd(jsonl()),
    "frames.jsonl.zst": lambda: zstd(jsonl()[:70]) + zstd(jsonl()[70:]),
    "array.json": array,
    "bom_array.json": lambda: BOM + array(),
    "array.json.gz": lambda: gzip.compress(array()),
    "table.csv": comma,
    "unix.csv": lambda: comma("unix"),
    "bom.csv": lambda: BOM + comma(),
    "table.csv.gz": lambda: gzip.compress(comma()),
    "table.csv.zst": lambda: zstd(comma()),
    "file.arrow": lambda: arrow(pa.ipc.new_file),
    "stream.arrow": lambda: arrow(pa.ipc.new_stream),
    "file.feather": lambda: arrow(pa.ipc.new_file),
    "groups.parquet": parquet,
}
"""File name -> its bytes."""


def writer(name: str) -> Writer:
    """A writer of one container."""

    def write(folder: Path) -> Case:
        expected = tuple(
            {key: row[key] for key in ("step", "prompt", "response", "reward")}
            | {"group": row["group_id"], "group_id": row["group_id"]}
            for row in ROWS
        )
        path = put(folder / name, PACKED[name]())
        source = "explicit"
        return Case(name, (path,), "canonical", expected, group_source=source, clean=True)

    write.__name__ = name
    return write


WRITERS = tuple(writer(name) for name in PACKED)
