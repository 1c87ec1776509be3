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
"""Share of the smaller part's prompts (or, in one folder, whole rows) that the other must have, and
of the earlier part's rows that a resumed run must have written again."""
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
    in a file, or half of their whole rows in one folder: shards of one step share neither. So they
    do, whatever their prompts, when the later of two folders or halves of a file begins and ends
    at later steps than the other, and has at least half as many rows of the step: a resumed run
    may draw other prompts, while shards of a run begin or end together, and rows that only came
    late are few.
    """
    forwards = pl.col("step").diff().ge(0).fill_null(True).all()
    if keys["step"].dtype == pl.Null or (len(paths) == 1 and keys.select(forwards).item()):
        return [], pl.repeat(0, keys.height, eager=True)
    parts = keys.select(_parts()).to_series().alias("part")
    rows = keys.select(
        "step", "file", "prompt", "response", "reward", pl.col("split").cast(pl.String), parts
    )
    rows = rows.filter(pl.col("step").is_not_null())
    rows = rows.with_columns(_folder(paths))
    found = []
    sharing = set(_sharing(rows).rows())
    staggered = set(_staggered(rows).rows())
    for step, *pair in sorted(sharing | staggered):
        both = [rows.filter(pl.col("step") == step, pl.col("part") == part) for part in pair]
        both.sort(key=lambda part: _written(paths[part["file"][0]], int(part["part"][0])))
        whole = both[1].height >= OVERLAP * both[0].height
        if (step, *pair) in sharing or whole:
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
    often = back.sum().over("file") > MOST_DESCENTS * step.drop_nulls().n_unique().over("file")
    starts = (file != file.shift()).fill_null(True) | (back & ~often)
    return starts.cum_sum().cast(pl.Int64) - 1


def _folder(paths: Sequence[Path | str]) -> pl.Expr:
    """The number of each row's folder."""
    folders = [str(path).rpartition("/")[0] for path in paths]
    number = {folder: at for at, folder in enumerate(dict.fromkeys(folders))}
    of_file = {at: number[folder] for at, folder in enumerate(folders)}
    return pl.col("file").replace_strict(of_file, return_dtype=pl.Int64).alias("folder")


def _sharing(rows: pl.DataFrame) -> pl.DataFrame:
    """Pairs of parts (part < other) that are one step twice by what they hold, and not shards.

    Files beside each other must share whole rows as well. That is looked at first, as files that
    hold an episode each share their prompt with all of their group.
    """
    pair = ["step", "part", "other"]
    by_row = _sharing_in(rows, ["prompt", "response", "reward"])
    alike = pl.concat([by_row.select("step", pl.col(name).alias("part")) for name in pair[1:]])
    apart = (pl.col("folder").n_unique() > 1).over("step")
    split = (pl.col("part").n_unique() > 1).over("step", "file")
    distant = rows.filter(apart | split)
    by_prompt = _sharing_in(
        pl.concat([distant, rows.join(alike, on=["step", "part"], how="semi")]),
        ["split", "prompt"],
    )
    place = rows.select("part", "file", "folder").unique()
    placed = by_prompt.join(place, on="part").join(
        place.rename({"part": "other"}), on="other", suffix="_other"
    )
    beside = (pl.col("folder") == pl.col("folder_other")) & (pl.col("file") != pl.col("file_other"))
    return pl.concat(
        [
            placed.filter(~beside).select(pair),
            placed.filter(beside).join(by_row, on=pair, how="semi").select(pair),
        ]
    )


def _sharing_in(rows: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Pairs of parts (part < other) that share at least OVERLAP of the smaller one's distinct
    values in `columns`."""
    values = rows.select("step", "part", *columns).unique()
    sizes = values.group_by("step", "part").len("size")
    of_other = sizes.rename({"part": "other", "size": "other_size"})
    return (
        values.join(values.rename({"part": "other"}), on=["step", *columns], nulls_equal=True)
        .filter(pl.col("part") < pl.col("other"))
        .group_by("step", "part", "other")
        .len("shared")
        .join(sizes, on=["step", "part"])
        .join(of_other, on=["step", "other"])
        .filter(pl.col("shared") >= OVERLAP * pl.min_horizontal("size", "other_size"))
        .select("step", "part", "other")
    )


def _staggered(rows: pl.DataFrame) -> pl.DataFrame:
    """Pairs of parts (part < other) that hold one step, of two writings of which one begins and
    ends at later steps. A writing is a folder, or what of its files follows where steps go back."""
    run = pl.col("part").rank("dense").over("file")
    parts = rows.select("step", "part", "split", "folder", run=run).unique()
    writing = ("split", "folder", "run")
    parts = parts.with_columns(
        first=pl.col("step").min().over(writing), last=pl.col("step").max().over(writing)
    )
    # Most steps stand in one writing, which may have thousands of files.
    parts = parts.filter((pl.col("first").n_unique() > 1).over("step", "split"))
    return (
        parts.join(parts, on=["step", "split"], suffix="_other", nulls_equal=True)
        .filter(
            pl.col("first") < pl.col("first_other"),
            pl.col("last") < pl.col("last_other"),
        )
        .select(
            "step",
            part=pl.min_horizontal("part", "part_other"),
            other=pl.max_horizontal("part", "part_other"),
        )
        .unique()
    )


def _written(path: Path | str, part: int) -> tuple[float, int]:
    """When a file was written, to the second; parts of one time count by their order."""
    return (float(int(Path(path).stat().st_mtime)) if isinstance(path, Path) else 0.0, part)
