"""Rows whose answers are conversations -> a row for each turn of the model.

Knows columns by their canonical names; formats and trainers are known elsewhere.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from ragen_diag.dumps.dialect import Draft
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.turns import Message, Turn, as_conversation, turns
from ragen_diag.rollouts import MESSAGES

_FLAGS = pl.List(pl.String)


def with_turns(raw: RawTable, draft: Draft) -> tuple[RawTable, Draft]:
    """The same rows, those with a conversation for an answer as one row per answer in it.

    `prompt` is what was given, `response` (or `messages`, where there is no response) holds the
    answers. A prompt that is text allows the first answer alone, since nothing says how the trainer
    would have put the later ones behind it: "later_turns_ignored". A conversation without an answer
    stays as a row without response.
    """
    chats = _chats(raw, draft)
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
        names = columns.pop("sample_id", raw.row.gather(rows)).cast(pl.String)
        columns["trajectory_id"] = f"{raw.place.stem}:" + names
        columns["turn"] = pl.Series([turn.index for turn in flat], dtype=pl.Int32)
    return _gathered(raw, rows, [turn.flags for turn in flat]), replace(draft, columns=columns)


def _chats(raw: RawTable, draft: Draft) -> list[list[Message] | None] | None:
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
        return found or [Turn(0, _plain(before), None)]
    found = list(turns(chat or []))
    if given is None:
        return found or [Turn(0, [], None)]
    if not found:
        return [Turn(0, [], None)]
    ignored = ("later_turns_ignored",) if len(found) > 1 else ()
    return [Turn(0, [], found[0].response, (*found[0].flags, *ignored))]


def _plain(messages: Sequence[Message]) -> list[dict[str, str | None]]:
    *_, last = turns([*messages, {"role": "assistant", "content": ""}])
    return last.before


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
