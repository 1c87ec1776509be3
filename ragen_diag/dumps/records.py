"""JSON-like files -> their records, chunk by chunk, for files that strict readers give up on.

Takes what trainers really leave behind: NaN and Infinity tokens, a byte-order mark, CRLF, broken
lines, invalid UTF-8 and lone surrogates. Every repair is counted. Knows no column names.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ragen_diag.dumps.files import MESSAGES, METRICS
from ragen_diag.dumps.plain import plain
from ragen_diag.dumps.raw import Record
from ragen_diag.dumps.streams import Container, unpacked
from ragen_diag.dumps.torchfile import read_torch
from ragen_diag.errors import DumpError

CHUNK_ROWS = 50_000
CHUNK_BYTES = 32 << 20

_MAX_DEPTH = 100
_SHOWN = 20
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Chunk:
    """Consecutive records of a file. `numbers` counts them from 1: the line of a JSON-lines file,
    the position in a list. `flags` lists per record what had to be repaired, `bad` says what is
    wrong with each line that holds no record."""

    records: list[Record] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    flags: list[list[str]] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    last: int = 0
    """Number of the last line that is not blank."""


def record_chunks(path: Path, container: Container) -> Iterator[Chunk]:
    """The records of a file.

    Raises:
        DumpError: a file that is one document is none; or a JSON-lines file of which no line
            holds an object; or the file cannot be read to its end.
    """
    try:
        yield from _chunks(path, container)
    except OSError as error:
        raise DumpError(
            f"{path}: cannot be read ({error.strerror}); is it still there, and its disk whole?"
        ) from error


def _chunks(path: Path, container: Container) -> Iterator[Chunk]:
    if container == "jsonl":
        yield from _jsonl_chunks(path)
    elif container == "torch":
        yield _listed(path, read_torch(path), escapes=True)
    else:
        with unpacked(path) as stream:
            content = stream.read()
        yield from _document_chunks(path, content, container)


def line_notes(
    path: Path, bad: Mapping[int, str], last: int, good: int, max_bad_share: float
) -> dict[str, int]:
    """How many lines were lost: a bad last line as "torn_line", others as "bad_line".

    Raises:
        DumpError: no line is good, or more than `max_bad_share` of them are bad; a torn line
            counts where that is 0.
    """
    if not good:
        problem = next((f"line {n} {what}" for n, what in bad.items()), "all lines are blank")
        raise DumpError(f"{path}: no line holds a JSON object ({problem}); write one on each line")
    notes = Counter("torn_line" if number == last else "bad_line" for number in bad)
    total = good + len(bad)
    # A run that is cut off leaves a torn line; who allows none at all means that one too.
    lost = notes["bad_line"] if max_bad_share else len(bad)
    if lost > max_bad_share * total:
        number, problem = next(iter(bad.items()))
        raise DumpError(
            f"{path}: {lost} of {total} lines hold no JSON object; the first, line"
            f" {number}, {problem}; correct them, write the file again, or raise --max-bad-rows"
        )
    return dict(notes)


def _jsonl_chunks(path: Path) -> Iterator[Chunk]:
    chunk, size = Chunk(), 0
    last = 0
    with unpacked(path) as stream:
        for number, line in enumerate(stream, start=1):
            text, flags = decoded(line)
            if not text:
                continue
            last = number
            try:
                chunk.records.append(parsed(text, flags))
            except ValueError as error:
                chunk.bad[number] = str(error)
                continue
            chunk.numbers.append(number)
            chunk.flags.append(flags)
            size += len(line)
            if len(chunk.numbers) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield Chunk(chunk.records, chunk.numbers, chunk.flags, chunk.bad, last)
                chunk, size = Chunk(), 0
    if chunk.records or chunk.bad or not last:
        yield Chunk(chunk.records, chunk.numbers, chunk.flags, chunk.bad, last)


def _document_chunks(path: Path, content: bytes, container: Container) -> Iterator[Chunk]:
    """A file that is one JSON or YAML document; JSON lines under the name `.json` are as well."""
    text, flags = decoded(content)
    try:
        if container == "yaml":
            value = plain(yaml.load(text, _YAML), len(content))
        else:
            value = json.loads(text)
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        raise DumpError(f"{path}: not YAML ({problem}); write the file again") from error
    except json.JSONDecodeError as error:
        if "Extra data" in error.msg or text.startswith("{"):
            yield from _jsonl_chunks(path)
            return
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise DumpError(f"{path}: not JSON ({where}); was the writer interrupted?") from error
    except (ValueError, RecursionError) as error:
        raise DumpError(
            f"{path}: holds a number, a date or a nesting beyond all bounds; leave that out or"
            " write it as text"
        ) from error
    escapes = _SURROGATE_ESCAPE.search(text) is not None
    yield _listed(path, _episode(path, value), escapes=escapes, flags=flags)


def _episode(path: Path, value: Any) -> Any:
    """The metrics of an episode together with the messages that a file beside them holds."""
    beside = path.with_name(path.name.removesuffix(METRICS) + MESSAGES)
    if not path.name.endswith(METRICS) or not isinstance(value, dict) or not beside.is_file():
        return value
    text, _ = decoded(beside.read_bytes())
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DumpError(f"{beside}: not JSON ({error}); write the episode again") from error
    return {"metrics": value, "messages": messages, "folder": path.absolute().parent.name}


class _YAML(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain data alone, by the fast loader where there is one."""


def _listed(path: Path, value: Any, *, escapes: bool, flags: Sequence[str] = ()) -> Chunk:
    """One document as records: itself, or its items; `escapes` says if surrogates may be in it."""
    items = value if isinstance(value, list) else [value]
    chunk = Chunk(last=len(items))
    for number, item in enumerate(items, start=1):
        try:
            record = _checked(item)
        except ValueError as error:
            chunk.bad[number] = str(error)
            continue
        row_flags = list(flags)
        if escapes:
            record = _repaired(record, row_flags)
        chunk.records.append(record)
        chunk.numbers.append(number)
        chunk.flags.append(row_flags)
    if not items:
        raise DumpError(f"{path}: the dump holds no rows; name a file that does")
    return chunk


def decoded(line: bytes) -> tuple[str, list[str]]:
    """Bytes as text without white space around it; bytes that are no UTF-8 become U+FFFD."""
    line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return line.decode().strip(), []
    except UnicodeDecodeError:
        return line.decode(errors="replace").strip(), ["invalid_utf8"]


def parsed(text: str, flags: list[str]) -> Record:
    """The object on a line; ValueError says what the line is instead."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (column {error.colno}: {error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("holds a number or a nesting beyond all bounds") from error
    # Counted first, since looking into every record takes longer than parsing it.
    deep = text.count("{") + text.count("[") >= _MAX_DEPTH
    record = _checked(value, look_deep=deep)
    # Only an escape can bring in a lone surrogate, which no table or file can hold.
    return _repaired(record, flags) if _SURROGATE_ESCAPE.search(text) else record


def _checked(value: Any, *, look_deep: bool = True) -> Record:
    if not isinstance(value, dict):
        raise ValueError(f"is JSON, but no object ({str(value)[:_SHOWN]!r})")
    if look_deep and _is_deeper(value, _MAX_DEPTH):
        raise ValueError(f"is nested more than {_MAX_DEPTH} levels deep")
    return value


def _repaired(record: Record, flags: list[str]) -> Record:
    repaired: Record = _without_surrogates(record)
    if repaired != record:
        flags.append("lone_surrogate")
    return repaired


def _is_deeper(value: Any, levels: int) -> bool:
    items: Iterable[Any] = value.values() if isinstance(value, dict) else value
    inner = (item for item in items if isinstance(item, dict | list))
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in inner)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    return value
