"""A trajectory with its turns -> one row per answer, under the canonical names.

What the dialects of episodes share. Knows no trainer.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ragen_diag.dumps.columns import FINISH_REASONS
from ragen_diag.dumps.dialect import PLACE, Draft, draft_by_names
from ragen_diag.dumps.raw import RawTable, Record
from ragen_diag.dumps.turns import Message, Turn, plain
from ragen_diag.rollouts import SCHEMA

_ENDINGS = {
    "stop": """done env_done tool_calls function_call max_turns max_turns_reached
        max_turns_exceeded""",
    "length": """prompt_too_long context_length max_input_tokens max_output_tokens max_total_tokens
        max_total_completion_tokens_reached max_prompt_length_exceeded
        max_response_length_exceeded""",
    "abort": "timeout timeout_reached content_filter",
    "error": "has_error model_error env_error",
}
_KINDS = {word: kind for kind, words in _ENDINGS.items() for word in words.split()}
_GRADES = re.compile("reward|score|penalty|func")
_WORD = re.compile("[a-z]+")
_MEASURES = re.compile(
    "n|num|count|len|lengths?|tokens?|chars|turns|seed|idx|index|ids?|row|epoch|steps?|time|timing"
    "|timestamp|duration|seconds|ms|version"
)


def rows(
    turns: Iterable[Turn],
    shared: Record,
    *,
    last: str = "unknown",
    unanswered: Sequence[Message] = (),
    cells: Callable[[Turn], Record] | None = None,
) -> Iterator[Record]:
    """One row per turn: what the trajectory's rows share, and what is the turn's own.

    `last` is how the last answer ended; the others were gone on from, so that they are whole.
    `cells` gives what a turn knows better or besides. A trajectory without an answer is one row
    whose response is null, after the messages `unanswered`.
    """
    answers = list(turns)
    for turn in answers or [Turn(0, plain(unanswered), None)]:
        row = {
            **shared,
            "turn": turn.index,
            "messages": turn.before,
            "response": turn.response,
            "finish_reason": "stop" if turn.index + 1 < len(answers) else last,
        }
        own = cells(turn) if cells and answers else {}
        flags = [*shared.get("_flags", ()), *own.get("_flags", ()), *turn.flags]
        yield {**row, **own, "_flags": list(dict.fromkeys(flags))}


def draft_rows(raw: RawTable) -> Draft:
    """The draft of rows that were unfolded: their names are the canonical ones already."""
    return draft_by_names(
        raw, {name: name for name in SCHEMA if name != "reward"}, reward=("reward",)
    )


def ending(word: object, otherwise: str = "unknown") -> str:
    """A trainer's word for how a trajectory ended, as the finish reason of its last answer.

    A limit of turns leaves the last answer whole; a limit of tokens is taken to have cut it.

    >>> ending("max_turns"), ending("max_total_tokens"), ending("agent_bored"), ending(None)
    ('stop', 'length', 'unknown', 'unknown')
    """
    if not isinstance(word, str):
        return "unknown"
    return _KINDS.get(word.lower()) or FINISH_REASONS.get(word.lower(), otherwise)


def own_ending(word: object) -> Record:
    """The cell of an answer whose own ending is told; no cell where the word is none."""
    reason = ending(word)
    return {} if reason == "unknown" else {"finish_reason": reason}


def scores(values: Mapping[str, Any]) -> tuple[dict[str, float], Record]:
    """The numbers that grade a trajectory, and the rest: no numbers, or those that only measure.

    Counts, lengths, ids and times are known by their names; a name that speaks of a reward is none
    of them.

    >>> scores({"format": True, "n_tokens": 12, "length_reward": 0.5, "note": "ok"})
    ({'format': 1.0, 'length_reward': 0.5}, {'n_tokens': 12, 'note': 'ok'})
    """
    grades = {
        name: grade
        for name, value in values.items()
        if (grade := number(value)) is not None and not _only_measures(name)
    }
    return grades, {name: value for name, value in values.items() if name not in grades}


def number(value: object) -> float | None:
    """A number as float; None for everything else, and for one that no float can hold."""
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def only(values: object) -> float | None:
    """The one number of a list that holds no other."""
    distinct = {number(value) for value in values} if isinstance(values, list) else set()
    return distinct.pop() if len(distinct) == 1 else None


def objects(value: object) -> list[Record] | None:
    """A list of objects; None for everything else."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return value
    return None


def fields(value: object) -> Record:
    """The fields of an object; none when the value is no object."""
    return dict(value) if isinstance(value, Mapping) else {}


def without(record: Mapping[str, Any], *names: str) -> Record:
    """The fields that have a value and no other place."""
    return {
        name: value
        for name, value in record.items()
        if value is not None and name not in names and name != PLACE
    }


def _only_measures(name: str) -> bool:
    name = name.lower()
    words = _WORD.findall(name)
    return not _GRADES.search(name) and any(_MEASURES.fullmatch(word) for word in words)
