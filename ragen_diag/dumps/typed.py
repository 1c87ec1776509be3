"""Records -> a polars table, each column in the one type that holds all its values.

A file is typed as a whole even where it is read in chunks, so that the size of a chunk changes no
value. Knows no column names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ragen_diag.dumps.jsontext import as_json
from ragen_diag.dumps.raw import Record

Dtype = Any
"""A polars data type, as a class or an instance: polars itself names no common type."""


@dataclass(frozen=True)
class Kind:
    """How the values of a column are held: by `dtype`, or where there is none as text, which
    `is_json` when every value is an object or a list."""

    dtype: Dtype | None
    is_json: bool = False


def kinds_of(records: Sequence[Record]) -> dict[str, Kind]:
    """The kind of every column, in first-seen order."""
    names = dict.fromkeys(name for record in records for name in record)
    return {name: _kind([record.get(name) for record in records]) for name in names}


def merged(one: Mapping[str, Kind], other: Mapping[str, Kind]) -> dict[str, Kind]:
    """The kinds that hold the values of both."""
    both = {name: _both(kind, other[name]) for name, kind in one.items() if name in other}
    return {**one, **other, **both} if one else dict(other)


def typed(records: Sequence[Record], kinds: Mapping[str, Kind]) -> pl.DataFrame:
    """The records as a table with a column for each of `kinds`."""
    return pl.DataFrame(
        [_column(name, [r.get(name) for r in records], kind) for name, kind in kinds.items()]
    )


def json_columns(kinds: Mapping[str, Kind]) -> frozenset[str]:
    """The text columns that hold JSON."""
    return frozenset(name for name, kind in kinds.items() if kind.is_json)


def mixed_columns(kinds: Mapping[str, Kind]) -> frozenset[str]:
    """The text columns that hold values of several types."""
    return frozenset(n for n, kind in kinds.items() if kind.dtype is None and not kind.is_json)


def _column(name: str, values: list[object], kind: Kind) -> pl.Series:
    if kind.dtype is not None:
        return pl.Series(name, values, dtype=kind.dtype, strict=False)
    return pl.Series(name, [_text(value) for value in values], dtype=pl.String)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    # As Python has it: NaN and infinity must not turn into JSON's null before they are counted.
    return repr(value) if isinstance(value, float) else as_json(value)


def _kind(values: list[object]) -> Kind:
    types = _types(values)
    if int in types and any(isinstance(v, int) and abs(v) >= 2**63 for v in values):
        return Kind(None)
    if types == {list}:
        items = [item for value in values if isinstance(value, list) for item in value]
        inner = _scalar(_types(items))
        if any(isinstance(item, int) and abs(item) >= 2**63 for item in items):
            inner = None
        dtype = _message_dtype(values) if inner is None else pl.List(inner)
    else:
        dtype = _scalar(types)
    return Kind(dtype, is_json=dtype is None and types <= {dict, list})


def _scalar(types: set[type]) -> Dtype | None:
    if not types:
        return pl.Null
    if types <= {int, float}:
        return pl.Int64 if types == {int} else pl.Float64
    return {frozenset({str}): pl.String, frozenset({bool}): pl.Boolean}.get(frozenset(types))


def _message_dtype(values: Iterable[object]) -> pl.DataType | None:
    """Chat messages whose fields are all text become structs; other objects stay JSON."""
    fields: dict[str, None] = {}
    for value in values:
        for item in value if isinstance(value, list) else ():
            if not isinstance(item, dict) or not _types(item.values()) <= {str}:
                return None
            fields |= dict.fromkeys(item)
    return pl.List(pl.Struct(dict.fromkeys(fields, pl.String))) if fields else None


def _types(values: Iterable[object]) -> set[type]:
    return {type(value) for value in values} - {type(None)}


def _both(one: Kind, other: Kind) -> Kind:
    if one == other or other.dtype == pl.Null:
        return one
    if one.dtype == pl.Null:
        return other
    wider = _wider(one.dtype, other.dtype)
    if wider is not None:
        return Kind(wider)
    return Kind(None, is_json=_holds_json(one) and _holds_json(other))


def _wider(one: Dtype | None, other: Dtype | None) -> Dtype | None:
    if one is None or other is None:
        return None
    if isinstance(one, pl.List) and isinstance(other, pl.List):
        inner = _wider(one.inner, other.inner)
        return None if inner is None else pl.List(inner)
    if isinstance(one, pl.Struct) and isinstance(other, pl.Struct):
        names = dict.fromkeys(f.name for f in (*one.fields, *other.fields))
        return pl.Struct(dict.fromkeys(names, pl.String))
    if one == other or other == pl.Null:
        return one
    if one == pl.Null:
        return other
    return pl.Float64() if {str(one), str(other)} == {"Int64", "Float64"} else None


def _holds_json(kind: Kind) -> bool:
    return kind.is_json or isinstance(kind.dtype, pl.List)
