"""Which column of a dump is the reward, and its value for every row.

A missing reward stays null with a flag; it never becomes 0. Knows no dialects.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from ragen_diag.dumps import columns
from ragen_diag.dumps.dialect import Draft
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.returns import DONE
from ragen_diag.errors import DumpError
from ragen_diag.settings import Reading, Reduce

NO_REWARD = "none"
"""The name that reads a dump as one without rewards."""
DICT_KEYS = ("score", "reward", "acc")
"""Which value of an object is the reward, first found first taken, where nobody says."""

_EXAMPLE = 60


@dataclass(frozen=True)
class Reward:
    """One reward per row (Float64, finite or null) and why it is null or incomplete.

    `flag` is "null_reward", "nan_reward" or "bad_reward" where the reward is null, "nan_component"
    or "bad_component" where a sum lacks a part, else null. `instead` says what the column holds
    when it has values and none of them is a number, else it is None. `parts` are further numbers
    that stood in the reward's column; `notes` counts rows by how they were read.
    """

    value: pl.Series
    flag: pl.Series
    instead: str | None = None
    parts: tuple[pl.Series, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)


def choose_reward(raw: RawTable, draft: Draft, reading: Reading) -> Reward | None:
    """The reward of every row: by the user's names, else the dialect's column, else its sum.

    None where there is no such column.

    Raises:
        DumpError: a reward is an object, and nothing says which of its values is meant.
    """
    rows = raw.frame.height
    if reading.rewards and reading.rewards[0][0] == NO_REWARD:
        nothing = pl.Series([None] * rows, dtype=pl.Float64)
        flag = pl.Series([None] * rows, dtype=pl.String)
        return Reward(nothing, flag, notes={"rewards_left_out": rows})
    if reading.rewards:
        return _asked(raw, draft, reading)
    if draft.reward is not None:
        return _column(raw, draft, draft.reward, reading)
    if draft.summed:
        notes = {"unweighted_reward_sum": rows} if len(draft.summed) > 1 else {}
        parts = [raw.frame[name] for name in draft.summed]
        return weighted_sum(parts, [1.0] * len(parts), notes=notes)
    return None


def candidates(raw: RawTable, draft: Draft) -> tuple[str, ...]:
    """Names that could be the reward: columns of numbers, and keys of components."""
    own = () if draft.reward is None else (draft.reward,)
    numeric = [name for name in draft.extra if is_numeric(raw.frame[name])]
    return tuple(dict.fromkeys((*own, *draft.summed, *draft.parts, *numeric, *_keys(draft))))


def one_column(values: pl.Series) -> Reward:
    """The reward as one column of plain values has it.

    >>> one_column(pl.Series([1, None])).flag.to_list()
    [None, 'null_reward']
    """
    value, reason = columns.numbers(values)
    flag = reason if reason.null_count() == len(reason) else reason + "_reward"
    return Reward(value, flag, _instead([values], value, reason))


def weighted_sum(
    parts: Sequence[pl.Series], weights: Sequence[float], *, notes: Mapping[str, int] | None = None
) -> Reward:
    """The weighted sum of all parts that are numbers, as trainers take it; null where none is.

    The trainer's weights are in no dump: with weights of 1 the sum is the trainer's reward only
    if all of its weights were 1.
    """
    read = [columns.numbers(part) for part in parts]
    values = pl.DataFrame(
        [
            (value * w).alias(str(i))
            for i, ((value, _), w) in enumerate(zip(read, weights, strict=True))
        ]
    )
    reasons = pl.DataFrame([reason.alias(str(i)) for i, (_, reason) in enumerate(read)])
    told = pl.when(pl.any_horizontal(pl.all().is_not_null())).then(pl.sum_horizontal(pl.all()))
    raw_total = values.select(told).to_series()
    total, _ = columns.numbers(raw_total)
    has_bad = pl.any_horizontal((pl.all() == "bad").fill_null(False))
    has_nan = pl.any_horizontal((pl.all() == "nan").fill_null(False))
    worst = reasons.select(pl.when(has_bad).then(pl.lit("bad")).when(has_nan).then(pl.lit("nan")))
    reason = worst.to_series().set(raw_total.is_not_null() & total.is_null(), "bad")
    empty = reason.fill_null("null") + "_reward"
    flag = (reason + "_component").zip_with(total.is_not_null(), empty)
    return Reward(total, flag, _instead(parts, total, reason), notes=notes or {})


def is_numeric(values: pl.Series) -> bool:
    """Whether a column can be a reward or one of its components by its type."""
    return values.dtype.is_numeric() or values.dtype == pl.Boolean


def _keys(draft: Draft) -> list[str]:
    """Keys of a column of components, which are names of rewards as well."""
    if "reward_components" not in draft.columns:
        return []
    parts = columns.components(draft.columns["reward_components"])[0]
    return parts.explode().struct.field("key").drop_nulls().unique(maintain_order=True).to_list()


def _asked(raw: RawTable, draft: Draft, reading: Reading) -> Reward | None:
    keyed = _keys(draft)
    found: list[pl.Series] = []
    for name, _ in reading.rewards:
        if name in raw.frame.columns:
            found.append(raw.frame[name])
        elif name in keyed:
            parts = columns.components(draft.columns["reward_components"])[0]
            found.append(columns.component(parts, name))
        else:
            return None
    if len(found) == 1 and reading.rewards[0][1] == 1.0:
        name = reading.rewards[0][0]
        in_column = name in raw.frame.columns
        return _column(raw, draft, name, reading) if in_column else one_column(found[0])
    return weighted_sum(found, [weight for _, weight in reading.rewards])


def _column(raw: RawTable, draft: Draft, name: str, reading: Reading) -> Reward:
    """One column, whose values may be objects or lists in all rows or in some."""
    # Under no name, as the table engine would take a name such as "^.*$" for a pattern.
    values = raw.frame[name].alias("")
    nested = isinstance(values.dtype, pl.Struct | pl.List | pl.Array) or name in raw.json_columns
    if not nested and not _some_nested(values):
        reward = one_column(values)
        text = values.dtype == pl.String and name not in raw.mixed_columns
        coerced = int(reward.value.is_not_null().sum()) if text else 0
        return replace(reward, notes={"reward_from_text": coerced} if coerced else {})
    return _nested(raw, draft, values, reading)


def _some_nested(values: pl.Series) -> bool:
    if values.dtype != pl.String:
        return False
    return bool(values.str.contains(r"^\s*[\[{]").fill_null(False).any())


def _nested(raw: RawTable, draft: Draft, values: pl.Series, reading: Reading) -> Reward:
    tokens = _lengths(draft)
    notes: Counter[str] = Counter()
    numbers: list[object] = []
    others: dict[str, list[object]] = {}
    keys: dict[str, None] = {}
    for i, cell in enumerate(values.to_list()):
        value = _loaded(cell)
        if isinstance(value, dict):
            keys |= dict.fromkeys(value)
            key = reading.reward_key or _key_of(raw, value, int(raw.row[i]))
            for name, other in value.items():
                number = columns.number(other)
                if name != key and number is not None:
                    others.setdefault(name, [None] * len(values))[i] = number
            notes["reward_from_object"] += 1
            value = value.get(key)
        if isinstance(value, list):
            how = reading.reward_reduce or "sum"
            of = "per_token" if tokens is not None and tokens[i] == len(value) else "list"
            notes[f"reward_{of}_{DONE[how]}"] += 1
            value = _reduced(value, how)
        numbers.append(value)
    if reading.reward_key and keys and reading.reward_key not in keys:
        listed = ", ".join(keys)
        raise DumpError(
            f"{raw.path}: no reward has the key {reading.reward_key!r}; the keys are {listed}"
        )
    texts = [None if value is None else str(value) for value in numbers]
    value, reason = columns.numbers(pl.Series(values.name, texts, dtype=pl.String))
    instead = _instead([values], value, reason)
    parts = tuple(pl.Series(name, cells, dtype=pl.Float64) for name, cells in others.items())
    return Reward(value, reason + "_reward", instead, parts, dict(notes))


def _lengths(draft: Draft) -> list[int | None] | None:
    """Tokens of every response, where the dump has them."""
    if "response_ids" not in draft.columns:
        return None
    return columns.token_ids(draft.columns["response_ids"])[0].list.len().to_list()


def _loaded(cell: object) -> object:
    if not isinstance(cell, str) or not cell.lstrip().startswith(("{", "[")):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def _key_of(raw: RawTable, value: Mapping[str, object], row: int) -> str:
    """Which value of an object is the reward, where nobody says.

    Raises:
        DumpError: several could be meant.
    """
    known = next((name for name in DICT_KEYS if name in value), None)
    if known is not None:
        return known
    numeric = [name for name, item in value.items() if isinstance(item, int | float)]
    if len(numeric) == 1:
        return numeric[0]
    raise DumpError(
        f"{raw.path}: row {row}: the reward is an object with keys {', '.join(value)}; say which is"
        " the reward with --reward-key"
    )


def _reduced(values: Sequence[object], how: Reduce) -> object:
    """A list of numbers as one; a list with anything else in it is no reward."""
    if not values or not all(isinstance(v, int | float) for v in values):
        return json.dumps(values, default=str)
    try:
        finite = [float(v) for v in values if isinstance(v, int | float)]
    except OverflowError:
        return json.dumps(values)
    if how == "last":
        return finite[-1]
    return sum(finite) if how == "sum" else sum(finite) / len(finite)


def _instead(parts: Sequence[pl.Series], value: pl.Series, reason: pl.Series) -> str | None:
    if value.is_not_null().any() or not (reason == "bad").any():
        return None
    column = next(part for part in parts if part.null_count() < len(part))
    kind = column.dtype.base_type().__name__.lower()
    example = repr(column.drop_nulls().head(1).to_list()[0])
    return f"{kind} values such as {example[:_EXAMPLE]}"
