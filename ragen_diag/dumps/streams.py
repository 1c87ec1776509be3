"""A file -> what kind of container its first bytes say it is, and its bytes with packing undone.

Gzip and Zstandard are undone by their magic bytes, whatever the name says. Files that would have
to be trusted (pickles), or that are no data at all, are refused here with the way out.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, cast

import pyarrow as pa

from ragen_diag.errors import DumpError

Container = Literal["parquet", "arrow", "csv", "jsonl", "json", "yaml", "torch"]

HEAD_BYTES = 4096
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_EXPORT = "load it where you trust it and write its rows as JSON lines or Parquet"

_REFUSED: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb"\x80[\x02-\x05]"),
        "a pickle (verl and SkyRL write batches so), which would run code when opened; " + _EXPORT,
    ),
    (re.compile(rb"\xff\xfe(?!\xff)|\xfe\xff"), "UTF-16 text; write it as UTF-8 first"),
    (re.compile(rb"version https://git-lfs"), "a Git LFS pointer; run `git lfs pull` first"),
    (re.compile(rb"\s*<(!doctype|html)", re.IGNORECASE), "an HTML page; was the download refused?"),
    (re.compile(rb"BZh|\xfd7zXZ|7z\xbc\xaf"), "packed in a way that is not read; unpack it first"),
    (re.compile(rb"SQLite format 3"), "an SQLite database; write its rows as Parquet first"),
    (re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8"), "a picture; name the dump instead"),
    (re.compile(rb"%PDF-"), "a PDF; name the dump instead"),
    (
        re.compile(rb"\[prompt\] "),
        "EasyR1's generations.log, text without steps; write its rows as JSON lines",
    ),
)
_MAGIC: tuple[tuple[bytes, Container], ...] = (
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"FEA1", "arrow"),
    (b"\xff\xff\xff\xff", "arrow"),
    (b"PK\x03\x04", "torch"),
)
_BY_ENDING: tuple[tuple[str, Container], ...] = (
    (".jsonl", "jsonl"),
    (".ndjson", "jsonl"),
    (".csv", "csv"),
    (".tsv", "csv"),
    (".yaml", "yaml"),
    (".yml", "yaml"),
)
_OBJECT = re.compile(rb"(\xef\xbb\xbf)?\s*\{")
_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[")


class EmptyFile(DumpError):
    """A file of 0 bytes."""


def container_of(path: Path) -> Container:
    """What a file is, by the first bytes under any packing, else by its name's ending.

    Raises:
        DumpError: the file is empty, of a refused kind, or none that is known.
    """
    with unpacked(path) as stream:
        head = stream.read(HEAD_BYTES)
    if not head:
        raise EmptyFile(
            f"{path}: the file is empty (0 bytes); was the writer interrupted? write it again or"
            " leave it out"
        )
    for magic, container in _MAGIC:
        if head.startswith(magic):
            return container
    for pattern, refusal in _REFUSED:
        if pattern.match(head):
            raise DumpError(f"{path}: {refusal}")
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    by_ending = next((kind for ending, kind in _BY_ENDING if name.endswith(ending)), None)
    if by_ending != "jsonl" and (_ARRAY.match(head) or name.endswith(".json")):
        return "json"
    if by_ending is not None:
        return by_ending
    if _OBJECT.match(head):
        return "jsonl"
    raise DumpError(
        f"{path}: no kind of dump that is known (first bytes {head[:12]!r}); write it as Parquet"
        " or as JSON lines first"
    )


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, gzip and Zstandard undone while reading.

    Raises:
        DumpError: the packed data is cut short or damaged; whatever stood before it is lost too,
            since nothing says what else of it is wrong.
    """
    with path.open("rb") as raw:
        magic = raw.read(4)
        raw.seek(0)
        try:
            if magic.startswith(_GZIP):
                with gzip.open(raw) as stream:
                    yield cast(IO[bytes], stream)
            elif magic == _ZSTD:
                with pa.CompressedInputStream(raw, "zstd") as stream:
                    yield cast(IO[bytes], io.BufferedReader(stream))
            else:
                yield raw
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DumpError(
                f"{path}: the packed data is damaged or cut short ({error}); pack it again"
            ) from error
        except OSError as error:
            if magic != _ZSTD:
                raise
            raise DumpError(
                f"{path}: the packed data is damaged ({str(error).splitlines()[0]}); pack it again"
            ) from error


def is_packed(path: Path) -> bool:
    """Whether the file is packed as a whole."""
    with path.open("rb") as raw:
        return raw.read(4).startswith((_GZIP, _ZSTD))
