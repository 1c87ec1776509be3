"""A JSON-lines file -> its rows as a typed table, for files that strict readers give up on.

Takes what trainers really leave behind: NaN and Infinity tokens, a byte-order mark, CRLF, broken
lines, invalid UTF-8 and lone surrogates. Every repair is counted. Knows no column names.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ragen_diag.dumps.columns import as_json
from ragen_diag.dumps.raw import RawTable
from ragen_diag.errors import DumpError

Record = dict[str, Any]

_MAX_BAD_SHARE = 0.1
_MAX_DEPTH = 100
_SHOWN = 20
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_jsonl(path: Path) -> RawTable:
    """The rows of a JSON-lines file; `row` is the line number.

    A last line that is cut off is dropped and counted as "torn_line", any other line that is not
    a JSON object, or is nested too deep, as "bad_line". "invalid_utf8" and "lone_surrogate" are
    flags of rows in which characters were replaced by U+FFFD.

    Raises:
        DumpError: no line holds a JSON object, or more than a tenth of them are bad.
    """
    records: list[Record] = []
    rows: list[int] = []
    flags: list[list[str]] = []
    bad: dict[int, str] = {}
    last = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            text, row_flags = _decoded(line)
            if not text:
                continue
            last = number
            try:
                records.append(_record(text, row_flags))
            except ValueError as error:
                bad[number] = str(error)
                continue
            rows.append(number)
            flags.append(row_flags)
    if not records:
        problem = next((f"line {n} {what}" for n, what in bad.items()), "all lines are blank")
        raise DumpError(f"{path}: no line holds a JSON object ({problem}); write one on each line")
    notes = _line_notes(path, bad, last, len(records))
    frame, json_columns = _table(records)
    return RawTable(
        path=path,
        frame=frame,
        row=pl.Series("_row", rows, dtype=pl.Int64),
        flags=pl.Series("_flags", flags, dtype=pl.List(pl.String)),
        json_columns=json_columns,
        notes=notes,
    )


def _line_notes(path: Path, bad: Mapping[int, str], last: int, good: int) -> dict[str, int]:
    notes = Counter("torn_line" if number == last else "bad_line" for number in bad)
    total = good + len(bad)
    if notes["bad_line"] > _MAX_BAD_SHARE * total:
        number, problem = next(iter(bad.items()))
        raise DumpError(
            f"{path}: {notes['bad_line']} of {total} lines hold no JSON object; the first, line"
            f" {number}, {problem}; correct them or write the file again"
        )
    return dict(notes)


def _decoded(line: bytes) -> tuple[str, list[str]]:
    try:
        return line.decode("utf-8-sig").strip(), []
    except UnicodeDecodeError:
        return line.decode("utf-8-sig", errors="replace").strip(), ["invalid_utf8"]


def _record(text: str, flags: list[str]) -> Record:
    """The object on a line; ValueError says what the line is instead."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (column {error.colno}: {error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("holds a number or a nesting beyond all bounds") from error
    if not isinstance(value, dict):
        raise ValueError(f"is JSON, but no object ({text[:_SHOWN]!r})")
    if _is_deeper(value, _MAX_DEPTH):
        raise ValueError(f"is nested more than {_MAX_DEPTH} levels deep")
    record: Record = value
    # Only an escape can bring in a lone surrogate, which no table or file can hold.
    if _SURROGATE_ESCAPE.search(text):
        repaired: Record = _without_surrogates(record)
        if repaired != record:
            flags.append("lone_surrogate")
        record = repaired
    return record


def _is_deeper(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value
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


def _table(records: Sequence[Record]) -> tuple[pl.DataFrame, frozenset[str]]:
    names = dict.fromkeys(name for record in records for name in record)
    columns: list[pl.Series] = []
    json_columns: set[str] = set()
    for name in names:
        values = [record.get(name) for record in records]
        column = _typed(name, values)
        if column is None:
            kinds = _kinds(values)
            if kinds <= {dict, list}:
                json_columns.add(name)
            column = pl.Series(name, [_text(value) for value in values], dtype=pl.String)
        columns.append(column)
    return pl.DataFrame(columns), frozenset(json_columns)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    # As Python has it: NaN and infinity must not turn into JSON's null before they are counted.
    return repr(value) if isinstance(value, float) else as_json(value)


def _typed(name: str, values: list[object]) -> pl.Series | None:
    """The values as one polars type, or None when there is no single one."""
    dtype = _dtype(values)
    if dtype is None:
        return None
    try:
        return pl.Series(name, values, dtype=dtype, strict=False)
    except OverflowError:
        return None


def _dtype(values: list[object]) -> pl.DataType | type[pl.DataType] | None:
    kinds = _kinds(values)
    if kinds == {list}:
        inner = _scalar_dtype(_kinds(item for v in values if isinstance(v, list) for item in v))
        if inner is None:
            return _message_dtype(values)
        return pl.List(inner)
    scalar = _scalar_dtype(kinds)
    if int in kinds and any(isinstance(v, int) and abs(v) >= 2**63 for v in values):
        return None
    return scalar


def _scalar_dtype(kinds: set[type]) -> type[pl.DataType] | None:
    if not kinds:
        return pl.Null
    if kinds <= {int, float}:
        return pl.Int64 if kinds == {int} else pl.Float64
    return {frozenset({str}): pl.String, frozenset({bool}): pl.Boolean}.get(frozenset(kinds))


def _message_dtype(values: Iterable[object]) -> pl.DataType | None:
    """Chat messages whose fields are all text become structs; other objects stay JSON."""
    fields: dict[str, None] = {}
    for value in values:
        for item in value if isinstance(value, list) else ():
            if not isinstance(item, dict) or not _kinds(item.values()) <= {str}:
                return None
            fields |= dict.fromkeys(item)
    return pl.List(pl.Struct(dict.fromkeys(fields, pl.String))) if fields else None


def _kinds(values: Iterable[object]) -> set[type]:
    return {type(value) for value in values} - {type(None)}
