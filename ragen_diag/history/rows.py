"""Rows as a trainer logged them -> the step of each row, and its values under flat names.

A row is a mapping of names to whatever stood there; nested mappings become `outer/inner`. Knows
the names that trainers count their steps by, and no files.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from ragen_diag.errors import HistoryError
from ragen_diag.history.tally import NO_STEP, NOT_A_NUMBER, UNDEFINED, Tally

Row = Mapping[str, object]
Entry = tuple[int, dict[str, object]]
"""A step, and what was logged at it under flat names."""

OWN_COUNTER = "_step"
"""W&B's count of its own calls: the training step only where the trainer says so or says none."""

STEP_KEYS = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "eval/global_step",
    "global_step/max_steps",
    "current_steps",
    "training_step",
    "rollout/step",
    "train/step",
    "training/step",
    "eval/step",
    "iteration",
    OWN_COUNTER,
)
"""What the step of a row may be called; the first of these that a row holds counts."""

_HEAD_ROWS = 1000
_SHOWN_NAMES = 8
_MAX_DEPTH = 32
_INT64 = range(-(2**63), 2**63)
_STEP = re.compile(r"\s*(\d{1,19})(?:\.0+)?\s*(?:/\s*\d+\s*)?", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)
_NO_NUMBER = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)
_TRUTH = {"true": 1.0, "false": 0.0}


def stepped(path: Path, rows: Iterable[Row], tally: Tally) -> Iterator[Entry]:
    """Every row that has a step; the others are counted.

    W&B's own counter is used only if none of the first 1000 rows holds another.

    Raises:
        HistoryError: there are rows, and none of them has a step.
    """
    stream = (dict(flat(row)) for row in rows)
    head = list(islice(stream, _HEAD_ROWS))
    keys = [key for key in STEP_KEYS if any(key in row for row in head)]
    others = [key for key in keys if key != OWN_COUNTER]
    usable = STEP_KEYS[:-1] if others else STEP_KEYS
    any_step = False
    for row in chain(head, stream):
        key = next((key for key in usable if key in row), None)
        step = None if key is None else as_step(row.pop(key))
        if key is None or step is None:
            tally.left_out[NO_STEP] += 1
            continue
        any_step = True
        tally.step_keys[key] += 1
        yield step, row
    if head and not any_step:
        raise HistoryError(
            f"{path}: no row has a step; it holds {_shown(head)}; name the training step of each"
            " row 'step' (or 'global_step')"
        )


def flat(row: Row, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """The leaves of a nested row. W&B's media and mappings nested too deep are leaves as well.

    >>> dict(flat({"actor": {"loss": 1, "lr": {"now": 2}}}))
    {'actor/loss': 1, 'actor/lr/now': 2}
    """
    for key, value in row.items():
        if isinstance(value, Mapping) and "_type" not in value and depth < _MAX_DEPTH:
            yield from flat(value, f"{prefix}{key}/", depth + 1)
        else:
            yield f"{prefix}{key}", value


def as_step(value: object) -> int | None:
    """A step as a whole number of 64 bits; None when it is none.

    >>> as_step("12/500"), as_step(3.0), as_step(3.5), as_step(True)
    (12, 3, None, None)
    """
    if isinstance(value, str):
        found = _STEP.fullmatch(value)
        value = int(found[1]) if found else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value in _INT64 else None


def as_number(value: object) -> float | str:
    """A finite number; else the reason why it is left out.

    Numbers written as text and truth values count as numbers, since trainers write them so.

    >>> as_number("1e-3"), as_number(True), as_number(float("nan")), as_number("x")
    (0.001, 1.0, 'undefined', 'not_a_number')
    """
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        if _NO_NUMBER.fullmatch(value):
            return UNDEFINED
        if not _NUMBER.fullmatch(value):
            return _TRUTH.get(value.strip().lower(), NOT_A_NUMBER)
    elif value is None:
        return UNDEFINED
    elif not isinstance(value, int | float):
        return NOT_A_NUMBER
    try:
        number = float(value)
    except OverflowError:
        return UNDEFINED
    return number if math.isfinite(number) else UNDEFINED


def _shown(head: Iterable[Row]) -> str:
    """Some names as Python would write them, so that none can act on a terminal."""
    names = list(dict.fromkeys(name for row in head for name in row))
    shown = ", ".join(ascii(name[:40]) for name in names[:_SHOWN_NAMES]) or "nothing at all"
    return f"{shown} and {len(names) - _SHOWN_NAMES} more" * (len(names) > _SHOWN_NAMES) or shown
