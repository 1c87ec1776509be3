"""Keys of all rows -> rows that stand in a dump twice: padding, and steps written again.

A run that was resumed writes steps again that are there already, into another folder or behind
the old rows. The two are never averaged: one is taken, or the user is asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ragen_diag.settings import DuplicateSteps

OVERLAP = 0.5
"""Share of the smaller part's prompts (or, in one folder, whole rows) that the other must have."""
MOST_DESCENTS = 0.2
"""Descents over distinct steps beyond which a file is not in the order of steps at all."""


@dataclass(frozen=True)
class Again:
    """A step that stands in two parts of the dump, by the places of their files; `later` is the
    one that was written last."""

    step: int
    earlier: int
    later: int
    rows_earlier: int
    rows_later: int


def padding_copies(keys: pl.DataFrame) -> pl.Series:
    """Which rows equal an earlier one of their step in prompt, response, truth and reward."""
    whole = ("step", "prompt", "response", "truth", "reward")
    return keys.select(pl.int_range(pl.len()).over(whole) > 0).to_series()


def steps_written_again(
    keys: pl.DataFrame, paths: Sequence[Path | str]
) -> tuple[list[Again], pl.Series]:
    """The steps that were written twice, and the part of the dump that each row belongs to.

    A part is a file, or what follows in a file where its steps go back. Two parts hold one step
    twice when they share at least half of their prompts in different folders or behind each other
    in a file, or half of their whole rows in one folder: shards of one step share neither.
    """
    forwards = pl.col("step").diff().ge(0).fill_null(True).all()
    if keys["step"].dtype == pl.Null or (len(paths) == 1 and keys.select(forwards).item()):
        return [], pl.repeat(0, keys.height, eager=True)
    parts = keys.select(_parts()).to_series().alias("part")
    rows = keys.select(
        "step", "file", "prompt", "response", "reward", pl.col("split").cast(pl.String), parts
    )
    rows = rows.filter(pl.col("step").is_not_null())
    found = []
    for step, *pair in _sharing_prompts(rows).sort("step", "part", "other").rows():
        both = [rows.filter(pl.col("step") == step, pl.col("part") == part) for part in pair]
        both.sort(key=lambda part: _written(paths[part["file"][0]], int(part["part"][0])))
        if _is_again(both[0], both[1], paths):
            (one, other), (n, m) = ([p["part"][0] for p in both], [p.height for p in both])
            found.append(Again(step, one, other, n, m))
    return found, parts


def kept_rows(
    keys: pl.DataFrame, parts: pl.Series, again: Sequence[Again], choice: DuplicateSteps
) -> pl.Series:
    """Which rows stay when of every step that was written twice the first or the last is taken."""
    keep = pl.repeat(True, keys.height, eager=True)
    if choice in ("error", "merge"):
        return keep
    for twice in again:
        dropped = twice.earlier if choice == "last" else twice.later
        keep &= ~((keys["step"] == twice.step).fill_null(False) & (parts == dropped))
    return keep


def _parts() -> pl.Expr:
    """Numbers the parts in order. Files whose steps go back often are in no order: one part."""
    step, file = pl.col("step"), pl.col("file")
    back = (step < step.shift().over("file")).fill_null(False)
    often = back.sum().over("file") > MOST_DESCENTS * step.n_unique().over("file")
    starts = (file != file.shift()).fill_null(True) | (back & ~often)
    return starts.cum_sum().cast(pl.Int64) - 1


def _sharing_prompts(rows: pl.DataFrame) -> pl.DataFrame:
    """Pairs of parts (part < other) that share at least OVERLAP of the smaller one's prompts."""
    prompts = rows.select("step", "part", "split", "prompt").unique()
    sizes = prompts.group_by("step", "part").len("size")
    of_other = sizes.rename({"part": "other", "size": "other_size"})
    return (
        prompts.join(
            prompts.rename({"part": "other"}), on=["step", "split", "prompt"], nulls_equal=True
        )
        .filter(pl.col("part") < pl.col("other"))
        .group_by("step", "part", "other")
        .len("shared")
        .join(sizes, on=["step", "part"])
        .join(of_other, on=["step", "other"])
        .filter(pl.col("shared") >= OVERLAP * pl.min_horizontal("size", "other_size"))
        .select("step", "part", "other")
    )


def _written(path: Path | str, part: int) -> tuple[float, int]:
    """When a file was written, to the second; parts of one time count by their order."""
    return (float(int(Path(path).stat().st_mtime)) if isinstance(path, Path) else 0.0, part)


def _is_again(one: pl.DataFrame, other: pl.DataFrame, paths: Sequence[Path | str]) -> bool:
    """Whether two parts that share prompts are one step twice, and not shards of it."""
    first, second = (paths[part["file"][0]] for part in (one, other))
    if first == second or str(first).rpartition("/")[0] != str(second).rpartition("/")[0]:
        return True
    a, b = (part.select("prompt", "response", "reward").unique() for part in (one, other))
    shared = a.join(b, on=a.columns, how="semi", nulls_equal=True).height
    return shared >= OVERLAP * min(a.height, b.height)
