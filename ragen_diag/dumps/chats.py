"""Rows whose answers are conversations -> a row for each turn of the model.

Knows columns by their canonical names; formats and trainers are known elsewhere.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from ragen_diag.dumps.dialect import Draft
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.turns import Message, Turn, as_conversation, plain, turns
from ragen_diag.rollouts import MESSAGES

_FLAGS = pl.List(pl.String)


def with_turns(raw: RawTable, draft: Draft) -> tuple[RawTable, Draft]:
    """The same rows, those with a conversation for an answer as one row per answer in it.

    `prompt` is what was given, `response` (or `messages`, where there is no response) holds the
    answers. Turns count from 0, or from the row's own `turn` where it names its trajectory. A
    prompt that is text allows the first answer alone, since nothing says how the trainer would have
    put the later ones behind it: "later_turns_ignored". A conversation without an answer stays as a
    row without response.
    """
    chats = _chats(draft)
    if chats is None:
        return raw, draft
    prompts = draft.columns.get("prompt")
    given = [None] * len(chats) if prompts is None else prompts.to_list()
    found = [_answers(before, chat) for before, chat in zip(given, chats, strict=True)]
    index = [row for row, answers in enumerate(found) for _ in answers]
    flat = [answer for answers in found for answer in answers]
    rows = pl.Series(index, dtype=pl.UInt32)
    columns = {name: values.gather(rows) for name, values in draft.columns.items()}
    columns["response"] = pl.Series([turn.response for turn in flat], dtype=pl.String)
    columns["messages"] = pl.Series([turn.before or None for turn in flat], dtype=MESSAGES)
    columns["prompt"] = pl.Series(
        [
            _text(given[row]) if not turn.before else None
            for row, turn in zip(index, flat, strict=True)
        ],
        dtype=pl.String,
    )
    if "trajectory_id" not in columns:
        names = columns.pop("sample_id", _numbers(raw.row).gather(rows)).cast(pl.String)
        columns["trajectory_id"] = f"{raw.path}:" + names
        columns["turn"] = pl.Series([turn.index for turn in flat], dtype=pl.Int32)
    elif len(flat) > len(found):
        columns["turn"] = _turn_numbers(columns.get("turn"), [turn.index for turn in flat])
    return _gathered(raw, rows, [turn.flags for turn in flat]), replace(draft, columns=columns)


def _turn_numbers(first: pl.Series | None, index: Sequence[int]) -> pl.Series:
    """The number of every answer's turn, where a row may say at which its first one stands."""
    places = pl.Series(index, dtype=pl.Int32)
    if first is None:
        return places
    return places + first.cast(pl.Int32, strict=False).fill_null(0)


def _chats(draft: Draft) -> list[list[Message] | None] | None:
    """The conversations of a column that holds some, else None."""
    values = draft.columns.get("response", draft.columns.get("messages"))
    if values is None or values.dtype.is_numeric():
        return None
    if values.dtype == pl.String:
        first = values.drop_nulls().head(1).to_list()
        if not first or not first[0].lstrip().startswith("["):
            return None
    chats = [as_conversation(value) for value in values.to_list()]
    return chats if any(chats) else None


def _answers(given: Any, chat: list[Message] | None) -> list[Turn]:
    before = as_conversation(given)
    if before is not None:
        found = list(turns([*before, *(chat or [])], given=len(before)))
        return found or [Turn(0, plain(before), None)]
    found = list(turns(chat or []))
    if given is None:
        return found or [Turn(0, [], None)]
    if not found:
        return [Turn(0, [], None)]
    ignored = ("later_turns_ignored",) if len(found) > 1 else ()
    return [Turn(0, [], found[0].response, (*found[0].flags, *ignored))]


def _numbers(row: pl.Series) -> pl.Series:
    """The number of each row's record, and the row's place in it where a record holds several."""
    among = row.to_frame().select(pl.int_range(pl.len()).over(pl.all())).to_series()
    number = row.cast(pl.String)
    return number.zip_with(among == 0, number + "." + among.cast(pl.String))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _gathered(raw: RawTable, rows: pl.Series, fresh: Sequence[tuple[str, ...]]) -> RawTable:
    flags = pl.DataFrame(
        {"old": raw.flags.gather(rows), "new": pl.Series(list(map(list, fresh)), dtype=_FLAGS)}
    ).select(pl.concat_list("old", "new").list.unique(maintain_order=True))
    return replace(
        raw,
        frame=raw.frame[rows],
        row=raw.row.gather(rows),
        flags=flags.to_series().alias("_flags"),
    )
