"""Paths -> the dump files behind them, in natural order, each known by its first bytes.

Nothing is globbed: a path is taken letter by letter. Knows formats only well enough to refuse
what is none; reads no rows.
"""

import errno
import filecmp
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ragen_diag.dumps.steps import step_of_file
from ragen_diag.errors import DumpError

SUFFIXES = (".parquet", ".jsonl")
HEAD_BYTES = 1024

_REFUSED: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb"\x80[\x02-\x05]"),
        "a pickle, which would run code; write it as Parquet first",
    ),
    (re.compile(rb"PK\x03\x04"), "a zip archive or torch .pt file; write it as Parquet first"),
    (re.compile(rb"\x1f\x8b"), "gzip-compressed; unpack it first"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "zstd-compressed; unpack it first"),
    (re.compile(rb"ARROW1|FEA1"), "an Arrow IPC file; write it as Parquet first"),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "UTF-16 text; write it as UTF-8 first"),
    (re.compile(rb"version https://git-lfs"), "a Git LFS pointer; run `git lfs pull` first"),
    (re.compile(rb"\s*<(!doctype|html)", re.IGNORECASE), "an HTML page; was the download refused?"),
    (re.compile(rb"(\xef\xbb\xbf)?\s*\["), "a JSON array; write one JSON object per line first"),
)
_JSON_LINES = re.compile(rb"(\xef\xbb\xbf)?\s*\{")
_NO_DUMPS = re.compile(r"(checkpoint|ckpt)s?([-_]?\d.*)?|ragen-diag-out", re.IGNORECASE)


@dataclass(frozen=True)
class DumpFile:
    """A regular file that looks like a dump, and its format."""

    path: Path
    kind: Literal["parquet", "jsonl"]


def find_files(paths: Sequence[str | Path]) -> list[DumpFile]:
    """The files behind `paths`: files as named, folders as their Parquet and JSON-lines files.

    A folder is searched itself and one level down, without hidden files, checkpoint folders and
    folders of earlier reports. Order: as given, inside a folder by natural numeric order. A file
    that is named twice is read once.

    Raises:
        DumpError: a path is missing, a folder holds no dump, a file is of a refused kind or a copy
            of another (the same bytes, and no other step in its name), or a name is not UTF-8.
    """
    files: dict[Path, DumpFile] = {}
    for given in paths:
        try:
            for path in _expand(_path(given)):
                files.setdefault(path.resolve(), DumpFile(path, _sniff(path)))
        except OSError as error:
            where = error.filename or given
            raise DumpError(f"{where}: cannot be opened ({error.strerror})") from error
    if not files:
        raise DumpError("no dump given; name a Parquet or JSON-lines file, or a folder of them")
    found = list(files.values())
    _refuse_copies(found)
    return found


def digest(files: Iterable[DumpFile]) -> str:
    """SHA-256 over the bytes of all files in order; of one file its ordinary checksum."""
    total = hashlib.sha256()
    for file in files:
        with file.path.open("rb") as stream:
            while block := stream.read(1 << 20):
                total.update(block)
    return total.hexdigest()


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which numbers inside names count as numbers.

    >>> sorted(["10.jsonl", "2.jsonl", "step_0100", "step_99"], key=natural_key)
    ['2.jsonl', '10.jsonl', 'step_99', 'step_0100']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    return tuple((0, int(part), part) if "0" <= part[0] <= "9" else (1, 0, part) for part in parts)


def _path(given: str | Path) -> Path:
    if not str(given):
        raise DumpError("a dump's path is empty; name a Parquet or JSON-lines file or a folder")
    return Path(given)


def _refuse_copies(files: Iterable[DumpFile]) -> None:
    """The rows of a copy would count twice."""
    alike: dict[tuple[int, int | None], list[Path]] = {}
    for file in files:
        earlier = alike.setdefault((file.path.stat().st_size, step_of_file(file.path)), [])
        for path in earlier:
            if filecmp.cmp(path, file.path, shallow=False):
                raise DumpError(f"{file.path}: a copy of {path}; name one of them")
        earlier.append(file.path)


def _expand(path: Path) -> list[Path]:
    readable = os.fsencode(path).decode(errors="replace")
    if readable != str(path):
        raise DumpError(f"{readable}: the name is not UTF-8; rename it first")
    if "://" in str(path) or re.match(r"(s3|gs|hf|https?):/", str(path)):
        raise DumpError(f"{path}: remote paths are not read; download the dump first")
    _require_there(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DumpError(f"{path}: neither a regular file nor a folder")
    found = _dumps_in(path)
    if not found:
        raise DumpError(
            f"{path}: the folder holds no .parquet or .jsonl file; name the folder of the rollouts"
        )
    return found


def _require_there(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError as error:
        if path.is_symlink():
            raise DumpError(f"{path}: a dangling link; correct it or name its target") from error
        raise DumpError(f"{path}: no such file or folder; check the spelling") from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DumpError(f"{path}: a link that leads back to itself; correct it") from error


def _dumps_in(folder: Path) -> list[Path]:
    found: list[Path] = []
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if entry.suffix in SUFFIXES:
            found += _expand(entry)
        elif entry.is_dir() and not _NO_DUMPS.fullmatch(entry.name):
            found += _dumps_below(entry)
    return sorted(found, key=lambda path: natural_key(str(path)))


def _dumps_below(folder: Path) -> list[Path]:
    entries = list(folder.iterdir())
    if any(entry.name == "result.json" for entry in entries):
        return []
    dumps = [e for e in entries if e.suffix in SUFFIXES and e.is_file() and e.name[0] != "."]
    return [path for entry in dumps for path in _expand(entry)]


def _sniff(path: Path) -> Literal["parquet", "jsonl"]:
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    if not head:
        raise DumpError(
            f"{path}: the file is empty (0 bytes); was the writer interrupted? write it again or"
            " leave it out"
        )
    if head.startswith(b"PAR1"):
        return "parquet"
    for magic, refusal in _REFUSED:
        if magic.match(head):
            raise DumpError(f"{path}: {refusal}")
    if path.suffix == ".jsonl" or _JSON_LINES.match(head):
        return "jsonl"
    raise DumpError(
        f"{path}: neither Parquet nor JSON lines (first bytes {head[:12]!r}); write it as one of"
        " them first"
    )
