"""Which column of a dump is the reward, and its value for every row.

A missing reward stays null with a flag; it never becomes 0. Knows no dialects.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ragen_diag.dumps import columns

_EXAMPLE = 60


@dataclass(frozen=True)
class Reward:
    """One reward per row (Float64, finite or null) and why it is null or incomplete.

    `flag` is "null_reward", "nan_reward" or "bad_reward" where the reward is null, "nan_component"
    or "bad_component" where a sum lacks a part, else null. `instead` says what the column holds
    when it has values and none of them is a number, else it is None.
    """

    value: pl.Series
    flag: pl.Series
    instead: str | None


def one_column(values: pl.Series) -> Reward:
    """The reward as one column has it.

    >>> one_column(pl.Series([1, None])).flag.to_list()
    [None, 'null_reward']
    """
    value, reason = columns.numbers(values)
    return Reward(value, reason + "_reward", _instead([values], value, reason))


def unweighted_sum(parts: Sequence[pl.Series]) -> Reward:
    """The sum of all parts that are numbers; null where none is.

    The trainer's weights are in no dump, so the sum is the trainer's reward only if all were 1.
    """
    read = [columns.numbers(part) for part in parts]
    values = pl.DataFrame([value.alias(str(i)) for i, (value, _) in enumerate(read)])
    reasons = pl.DataFrame([reason.alias(str(i)) for i, (_, reason) in enumerate(read)])
    total = values.select(
        pl.when(pl.any_horizontal(pl.all().is_not_null())).then(pl.sum_horizontal(pl.all()))
    ).to_series()
    has_bad = pl.any_horizontal((pl.all() == "bad").fill_null(False))
    has_nan = pl.any_horizontal((pl.all() == "nan").fill_null(False))
    worst = reasons.select(pl.when(has_bad).then(pl.lit("bad")).when(has_nan).then(pl.lit("nan")))
    reason = worst.to_series()
    empty = reason.fill_null("null") + "_reward"
    flag = (reason + "_component").zip_with(total.is_not_null(), empty)
    return Reward(total, flag, _instead(parts, total, reason))


def is_numeric(values: pl.Series) -> bool:
    """Whether a column can be a reward or one of its components by its type."""
    return values.dtype.is_numeric() or values.dtype == pl.Boolean


def _instead(parts: Sequence[pl.Series], value: pl.Series, reason: pl.Series) -> str | None:
    if value.is_not_null().any() or not (reason == "bad").any():
        return None
    column = next(part for part in parts if part.null_count() < len(part))
    kind = column.dtype.base_type().__name__.lower()
    example = repr(column.drop_nulls().head(1).to_list()[0])
    return f"{kind} values such as {example[:_EXAMPLE]}"
