"""Values as trainers write them -> values of the canonical table's types, one column at a time.

What cannot be read becomes null with a reason, never 0. Knows no files and no dialects.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from ragen_diag.rollouts import COMPONENTS, MESSAGES

EXACT_FLOAT = 2**53
_NOT_FINITE = [math.nan, math.inf, -math.inf]
_TEXT = (pl.String, pl.Categorical, pl.Enum)
_FINISH = {
    "stop": ("stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete", "completed"),
    "length": ("length", "max_tokens", "max_length", "max_new_tokens", "truncated"),
    "abort": ("abort", "aborted", "cancelled", "canceled"),
    "error": ("error", "failed"),
    "unknown": ("unknown",),
}
FINISH_REASONS: Mapping[str, str] = {
    word: kind for kind, words in _FINISH.items() for word in words
}


def numbers(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The finite numbers in `values` as Float64, and why the others are null.

    Numbers, numeric text and booleans (1 and 0) count. The second series holds "null" (nothing
    there), "nan", "bad" (infinite, or no number) or null (a number).

    >>> number, reason = numbers(pl.Series(["0.5", "True", "n/a", "NaN", None]))
    >>> number.to_list(), reason.to_list()
    ([0.5, 1.0, None, None, None], [None, None, 'bad', 'nan', 'null'])
    """
    raw, value = pl.lit(values), pl.lit(_floats(values))
    reason = (
        pl.when(raw.is_null())
        .then(pl.lit("null"))
        .when(value.is_nan())
        .then(pl.lit("nan"))
        .when(value.is_null() | value.is_infinite())
        .then(pl.lit("bad"))
    )
    frame = pl.select(reason=reason, value=pl.when(value.is_finite()).then(value))
    return frame["value"], frame["reason"]


def integers(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Whole numbers as Int64, and a mask of the values that are there but are none."""
    if values.dtype.is_integer():
        whole = values.cast(pl.Int64, strict=False)
    else:
        value, _ = numbers(values)
        whole = value.set(value != value.round(), None).cast(pl.Int64, strict=False)
    return whole, values.is_not_null() & whole.is_null()


def texts(values: pl.Series) -> pl.Series:
    """Text as it is, bytes as UTF-8, other scalars in their ordinary form, the rest as JSON."""
    if values.dtype == pl.Binary:
        return _mapped(values, lambda value: bytes(value).decode("utf-8", "replace"))
    if values.dtype in _TEXT or values.dtype.is_integer() or values.dtype == pl.Null:
        return values.cast(pl.String)
    return _mapped(values, as_json)


def identifiers(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Ids as text, a whole float like its integer, and a mask of ids a float cannot tell apart.

    >>> identifiers(pl.Series([1.0, 2.5]))[0].to_list()
    ['1', '2.5']
    """
    if not values.dtype.is_float():
        return texts(values), pl.repeat(False, len(values), eager=True)
    wide = values.cast(pl.Float64).fill_nan(None)
    # Beyond 2**53 (and surely beyond the integers' own range) a float no longer names one integer.
    vague = (wide.abs() >= EXACT_FLOAT).fill_null(False)
    whole = wide.set(vague | (wide != wide.round()), None).cast(pl.Int64).cast(pl.String)
    return whole.zip_with(whole.is_not_null(), wide.cast(pl.String)), vague


def token_ids(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Lists of token ids as List(Int32), and a mask of lists that hold something else."""
    kind = pl.List(pl.Int32)
    if not _is_list(values) or _inner(values).is_nested():
        return pl.Series(values.name, [None] * len(values), dtype=kind), values.is_not_null()
    lists = values.cast(kind, strict=False)
    bad = (lists.list.eval(pl.element().is_null()).list.any()).fill_null(False)
    return lists.set(bad, None) if bad.any() else lists, bad


def logprobs(values: pl.Series) -> pl.Series:
    """Lists of log-probabilities as List(Float32); what is no list becomes null."""
    kind = pl.List(pl.Float32)
    if not _is_list(values) or _inner(values).is_nested():
        return pl.Series(values.name, [None] * len(values), dtype=kind)
    return values.cast(kind, strict=False)


def conversations(values: pl.Series, *, is_json: bool = False) -> pl.Series | None:
    """Chat messages with role and content alone, or None when the column holds none.

    Content given in parts is joined to one text. `is_json`: the column is JSON text.
    """
    if values.dtype == MESSAGES:
        return values
    if is_json:
        lists = [None if value is None else json.loads(value) for value in values]
    elif _is_list(values) and isinstance(_inner(values), pl.Struct):
        lists = values.to_list()
    else:
        return None
    if not any(lists) or not all(_are_messages(value) for value in lists):
        return None
    chats = [value and [_message(item) for item in value] for value in lists]
    return pl.Series(values.name, chats, dtype=MESSAGES)


def components(values: pl.Series) -> pl.Series:
    """Named numbers per row, as list of key and value.

    Takes a Parquet map, a list of pairs, a struct, or the JSON text of objects.
    """
    kind = values.dtype.base_type().__name__
    if kind in ("List", "Map"):
        return values.cast(COMPONENTS, strict=False).list.eval(
            pl.struct(key=_field("key"), value=_field("value").replace(_NOT_FINITE, None))
        )
    dicts = [json.loads(value) if isinstance(value, str) else value for value in values]
    rows = [_components(value) for value in dicts]
    return pl.Series(values.name, rows, dtype=COMPONENTS)


def finish_reasons(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Reasons in the canonical words, and a mask of those that are none of the known ones."""
    words = texts(values).str.strip_chars().str.to_lowercase()
    known = words.replace_strict(FINISH_REASONS, default=None, return_dtype=pl.String)
    return known.fill_null("unknown"), words.is_not_null() & known.is_null()


def as_components(columns: Sequence[pl.Series], rows: int) -> pl.Series:
    """Columns of numbers gathered into one column of key and value, in their order."""
    if not columns:
        return pl.Series("reward_components", [None] * rows, dtype=COMPONENTS)
    pairs = [
        pl.struct(key=pl.lit(column.name), value=pl.lit(numbers(column)[0])) for column in columns
    ]
    return pl.select(pl.concat_list(pairs).alias("reward_components")).to_series()


def component(values: pl.Series, name: str) -> pl.Series:
    """The value under one key of a column of components, null where the key is missing."""
    return values.list.eval(_field("value").filter(_field("key") == name)).list.first()


def as_json(value: object) -> str:
    """One value as strict JSON; numbers that JSON lacks become null.

    >>> as_json({"a": [float("nan"), True]})
    '{"a": [null, true]}'
    """
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, default=str)


def _floats(values: pl.Series) -> pl.Series:
    dtype = values.dtype
    if dtype in _TEXT:
        text = pl.lit(values.cast(pl.String)).str.strip_chars().str.to_lowercase()
        value = (
            pl.when(text == "true")
            .then(1.0)
            .when(text == "false")
            .then(0.0)
            .otherwise(text.cast(pl.Float64, strict=False))
        )
        return pl.select(value).to_series()
    if dtype.is_numeric() or dtype in (pl.Boolean, pl.Null):
        return values.cast(pl.Float64)
    return pl.Series([None] * len(values), dtype=pl.Float64)


def _is_list(values: pl.Series) -> bool:
    return isinstance(values.dtype, pl.List | pl.Array)


def _inner(values: pl.Series) -> pl.DataType:
    dtype = values.dtype
    assert isinstance(dtype, pl.List | pl.Array)
    inner = dtype.inner
    return inner if isinstance(inner, pl.DataType) else inner()


def _field(name: str) -> pl.Expr:
    return pl.element().struct.field(name)


def _mapped(values: pl.Series, to_text: Callable[[Any], str]) -> pl.Series:
    cells = [None if value is None else to_text(value) for value in values.to_list()]
    return pl.Series(values.name, cells, dtype=pl.String)


def _are_messages(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(
        isinstance(item, dict) and "role" in item and "content" in item for item in value
    )


def _message(item: Mapping[str, object]) -> dict[str, str | None]:
    role, content = item["role"], item["content"]
    return {"role": None if role is None else str(role), "content": _content(content)}


def _content(content: object) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(str(part.get("text") or "") for part in content)
    return as_json(content)


def _components(value: object) -> list[dict[str, object]] | None:
    if not isinstance(value, dict):
        return None
    numeric = {key: v for key, v in value.items() if v is None or isinstance(v, int | float)}
    return [
        {"key": key, "value": None if v is None or not math.isfinite(v) else float(v)}
        for key, v in numeric.items()
    ]


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
