"""Values as trainers write them -> values of the canonical table's types, one column at a time.

What cannot be read becomes null with a reason, never 0. Knows no files and no dialects.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from ragen_diag.dumps.jsontext import as_json, from_json
from ragen_diag.dumps.turns import Message, Plain, as_conversation, content, plain_message
from ragen_diag.rollouts import COMPONENTS, MESSAGES

EXACT_FLOAT = 2**53
LARGEST = 1e150
"""The square of a larger number, or a sum of such squares, is beyond what a float can hold."""
LARGEST_ID = 2**31 - 1
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
    there), "nan", "bad" (beyond LARGEST, or no number) or null (a number).

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
        .when(value.is_null() | (value.abs() > LARGEST))
        .then(pl.lit("bad"))
    )
    frame = pl.select(reason=reason, value=pl.when(value.abs() <= LARGEST).then(value))
    return frame["value"], frame["reason"]


def number(value: object) -> float | None:
    """A number within LARGEST as float, else None."""
    try:
        found = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return found if abs(found) <= LARGEST else None


def integers(values: pl.Series, dtype: type[pl.DataType] = pl.Int64) -> tuple[pl.Series, pl.Series]:
    """Whole numbers as `dtype`, and a mask of the values that are there but fit in none.

    >>> integers(pl.Series(["7", "7.0", "7.5", "9007199254740993"]))[0].to_list()
    [7, 7, None, 9007199254740993]
    """
    whole = values
    if not values.dtype.is_integer():
        value, _ = numbers(values)
        # A float from EXACT_FLOAT on may stand for an integer beside it.
        inexact = (value != value.round()) | (value.abs() >= EXACT_FLOAT)
        whole = value.set(inexact, None).cast(pl.Int64)
    if values.dtype == pl.String:
        exact = pl.lit(values).str.strip_chars().cast(pl.Int64, strict=False)
        whole = pl.select(exact.fill_null(pl.lit(whole))).to_series()
    whole = whole.cast(dtype, strict=False)
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
    """Lists of token ids as List(Int32), and a mask of values that are something else.

    An id is a whole number from 0 to LARGEST_ID; -1 or -100 is padding, which no model was fed.

    >>> token_ids(pl.Series([[1.0, 2.0], [1.5], [3, -100]]))[0].to_list()
    [[1, 2], None, None]
    """
    item = pl.element()
    is_id = (item == item.round()) & item.is_between(0, LARGEST_ID)
    return _lists_of(values, is_id, pl.Int32)


def logprobs(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Lists of log-probabilities as List(Float32), and a mask of values that are none.

    -inf is one: that of a token which the sampler had cut off.
    """
    narrow = pl.element().cast(pl.Float32, strict=False)
    usable = narrow.is_finite() | (pl.element() == -math.inf)
    return _lists_of(values, usable, pl.Float32)


def conversations(values: pl.Series) -> tuple[pl.Series, pl.Series] | None:
    """Chat messages with role and content alone, or None when the column holds none.

    Messages may stand as structs, as objects, or as the JSON text of either; content in parts is
    joined to one text. The second series has a flag where something was done to a value:
    "text_as_user_message" for a plain text among conversations, "bad_messages" for anything else.
    """
    if values.dtype == MESSAGES:
        return values, pl.Series([None] * len(values), dtype=pl.String)
    if values.dtype == pl.String:
        # Mostly no text starts so, which costs less to see than a pattern.
        may = values.str.starts_with("[").fill_null(False)
        if not may.any() or not values.filter(may).str.contains(r"^\[\s*\{").any():
            return None
    elif not _is_list(values) or not isinstance(_inner(values), pl.Struct):
        return None
    cells = values.to_list()
    chats = [as_conversation(value) for value in cells]
    if not any(chats):
        return None
    read = [_messages(cell, chat) for cell, chat in zip(cells, chats, strict=True)]
    return (
        pl.Series(values.name, [messages for messages, _ in read], dtype=MESSAGES),
        pl.Series([flag for _, flag in read], dtype=pl.String),
    )


def components(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Named numbers per row, as list of key and value, and a mask of values that are no such thing.

    Takes a Parquet map, a list of pairs, a struct, or the JSON text of objects.
    """
    if values.dtype == COMPONENTS:
        value = _field("value")
        usable = pl.when(value.abs() <= LARGEST).then(value)
        named = values.list.eval(pl.struct(key=_field("key"), value=usable))
    else:
        cells = [_components(from_json(value)) for value in values.to_list()]
        named = pl.Series(values.name, cells, dtype=COMPONENTS)
    return named, values.is_not_null() & named.is_null()


def finish_reasons(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Reasons in the canonical words, and a mask of those that are none of the known ones."""
    words = texts(values).str.strip_chars().str.to_lowercase()
    known = words.replace_strict(FINISH_REASONS, default=None, return_dtype=pl.String)
    return known.fill_null("unknown"), words.is_not_null() & known.is_null()


def as_components(columns: Sequence[pl.Series], rows: int) -> pl.Series:
    """Columns of numbers gathered into one column of key and value, in their order."""
    if not columns:
        return pl.Series("reward_components", [None], dtype=COMPONENTS).new_from_index(0, rows)
    pairs = [
        pl.struct(key=pl.lit(column.name), value=pl.lit(numbers(column)[0])) for column in columns
    ]
    return pl.select(pl.concat_list(pairs).alias("reward_components")).to_series()


def component(values: pl.Series, name: str) -> pl.Series:
    """The value under one key of a column of components, null where the key is missing."""
    return values.list.eval(_field("value").filter(_field("key") == name)).list.first()


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


def _lists_of(
    values: pl.Series, usable: pl.Expr, dtype: type[pl.DataType]
) -> tuple[pl.Series, pl.Series]:
    """The lists whose every element is `usable`, and a mask of the values that are no such list.

    One value that is none may have made text of the whole column, so text is read as JSON.
    """
    if _is_list(values) and _inner(values).is_numeric():
        lists = values.cast(pl.List(pl.Float64))
    else:
        cells = [from_json(value) for value in values.to_list()]
        rows = [
            [v if v == -math.inf else number(v) for v in cell] if isinstance(cell, list) else None
            for cell in cells
        ]
        lists = pl.Series(values.name, rows, dtype=pl.List(pl.Float64))
    all_usable = lists.list.eval(usable.fill_null(False)).list.all()
    typed = pl.lit(lists.cast(pl.List(dtype), strict=False))
    kept = pl.select(pl.when(pl.lit(all_usable)).then(typed)).to_series()
    return kept, values.is_not_null() & kept.is_null()


def _mapped(values: pl.Series, to_text: Callable[[Any], str]) -> pl.Series:
    cells = [None if value is None else to_text(value) for value in values.to_list()]
    return pl.Series(values.name, cells, dtype=pl.String)


def _messages(
    cell: object, chat: Sequence[Message] | None
) -> tuple[list[Plain] | None, str | None]:
    if chat is not None:
        read = [content(message) for message in chat]
        flag = next((flag for _, flags in read for flag in flags), None)
        return [plain_message(m, text) for m, (text, _) in zip(chat, read, strict=True)], flag
    if isinstance(cell, str):
        return [{"role": "user", "content": cell}], "text_as_user_message"
    return None, None if cell is None else "bad_messages"


def _components(value: object) -> list[dict[str, object]] | None:
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list) and all(_is_pair(item) for item in value):
        pairs = [(item["key"], item["value"]) for item in value]
    else:
        return None
    return [
        {"key": key, "value": number(v)}
        for key, v in pairs
        if v is None or isinstance(v, int | float)
    ]


def _is_pair(item: object) -> bool:
    return isinstance(item, dict) and item.keys() == {"key", "value"}
