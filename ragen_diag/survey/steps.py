"""The steps of a dump side by side, and those that do not look like the others."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import polars as pl

from ragen_diag.dumps.decisions import Decided
from ragen_diag.rollouts import listing
from ragen_diag.survey.facts import Problem, Step, problem
from ragen_diag.survey.hashes import one_hash
from ragen_diag.survey.places import Places

FEWEST_STEPS = 3
"""Of fewer steps none is the odd one out."""
FEW, MANY = 0.5, 2.0
"""Times the median of all steps: at or below, at or above, a step is told as an outlier."""
REGULAR = 0.8
"""Share of the gaps between steps that are the commonest one, for the others to be called gaps."""


def distinct_prompts(rows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Columns step and prompt: each prompt of a step once (some may stand there again)."""
    # Where no group has several prompts, groups tell as much as rows, and are far fewer.
    simple = bool(groups["one_prompt"].fill_null(True).all())
    return (
        (groups if simple else rows)
        .select(pl.col("step").cast(pl.Int64), "prompt")
        .drop_nulls("prompt")
    )


def step_table(keys: pl.DataFrame, rows: pl.DataFrame, groups: pl.DataFrame) -> tuple[Step, ...]:
    """One entry per step, in ascending order; see `trajectories` and `group_table`."""
    step = pl.col("step").cast(pl.Int64)
    n, mean = pl.col("n"), pl.col("mean")
    prompts = distinct_prompts(rows, groups)
    parts = [
        keys.group_by(step).agg(pl.len().alias("rows")),
        prompts.group_by(step).agg(pl.col("prompt").n_unique().alias("prompts")),
        groups.group_by(step).agg(
            pl.len().alias("groups"),
            pl.col("var").count().alias("compared_groups"),
            (pl.col("flat") == "equal").sum().alias("flat_groups"),
            n.sum().alias("rewards"),
            pl.when(n.sum() > 0).then((mean * n).sum() / n.sum()).alias("reward_mean"),
        ),
    ]
    table = parts[0]
    for part in parts[1:]:
        table = table.join(part, on="step", how="left", nulls_equal=True)
    table = table.with_columns(pl.col("prompts").fill_null(0)).sort("step", nulls_last=True)
    return tuple(Step(**row) for row in table.iter_rows(named=True))


def step_problems(
    steps: Sequence[Step], decided: Decided, places: Places, *, scored: bool
) -> list[Problem]:
    """What is odd about the steps; `scored` says whether a model is to score them."""
    found = _unknown(steps)
    found += _splits(steps, decided.keys)
    found += _outliers(steps, "rows", decided.keys, places)
    odd = {place for problem in found for place in problem.places}
    found += [
        problem
        for problem in _outliers(steps, "prompts", decided.keys, places)
        if not odd.intersection(problem.places)
    ]
    found += _gaps(steps)
    found += _without_reward(steps)
    found += _one_prompt(steps, scored=scored)
    found += _repeats(decided.keys, places)
    return found


def _unknown(steps: Sequence[Step]) -> list[Problem]:
    nameless = next((step for step in steps if step.step is None), None)
    if nameless is None:
        return []
    if len(steps) == 1:
        message = "the dump names no step; a post-mortem needs one: a column step, or file names"
        return [problem("no_step", "note", message)]
    return [
        problem(
            "rows_without_step",
            "warning",
            f"{nameless.rows:,} rows have no step where others do; fill the column step",
        )
    ]


def _splits(steps: Sequence[Step], keys: pl.DataFrame) -> list[Problem]:
    counts = split_counts(keys)
    if len(counts) < 2:
        return []
    listed = ", ".join(f"{split} {rows:,}" for split, rows in counts.items())
    several = pl.col("split").drop_nulls().n_unique() > 1
    mixed = keys.group_by("step").agg(several).filter("split")["step"].sort(nulls_last=True)
    if mixed.is_empty():
        message = f"the dump holds several splits ({listed}); choose one with --split"
        return [problem("several_splits", "warning", message)]
    return [
        problem(
            "mixed_splits",
            # A step that mixes splits is refused; the others can be analysed.
            "error" if len(mixed) == len(steps) else "warning",
            f"rows of several splits are mixed in {_named(mixed.to_list())} ({listed} in all), as"
            " when evaluation is logged beside training; choose one with --split",
        )
    ]


def split_counts(keys: pl.DataFrame) -> dict[str, int]:
    """Rows by split, in alphabetical order; empty where the dump names none."""
    return dict(sorted(keys["split"].drop_nulls().cast(pl.String).value_counts().rows()))


def _outliers(
    steps: Sequence[Step], what: str, keys: pl.DataFrame, places: Places
) -> list[Problem]:
    """Steps with far fewer or more rows (or prompts) than the median of all."""
    if len(steps) < FEWEST_STEPS:
        return []
    usual = median(getattr(step, what) for step in steps)
    found = []
    for word, odd in (
        ("few", [step for step in steps if getattr(step, what) <= FEW * usual]),
        ("many", [step for step in steps if getattr(step, what) >= MANY * usual]),
    ):
        if odd:
            told = ", ".join(f"step {step.step}: {getattr(step, what):,}" for step in odd[:5])
            more = f", and {len(odd) - 5} more" if len(odd) > 5 else ""
            why = (
                "cut short, written over, or logged in part"
                if word == "few"
                else "written by two, or evaluated beside training"
            )
            found.append(
                problem(
                    f"{word}_{what}_in_step",
                    "warning",
                    f"{told}{more} {what}, where the median is {usual:,.0f}: {why}? look at the"
                    " files, or leave such steps out",
                    places.of_step(keys, odd[0].step),
                )
            )
    return found


def _gaps(steps: Sequence[Step]) -> list[Problem]:
    numbers = [step.step for step in steps if step.step is not None]
    gaps = Counter(later - earlier for earlier, later in pairwise(numbers))
    if len(gaps) < 2:
        return []
    usual, times = gaps.most_common(1)[0]
    whole = [pair for pair in pairwise(numbers) if (pair[1] - pair[0]) % usual == 0]
    lost = sum((later - earlier) // usual - 1 for earlier, later in whole)
    if times < REGULAR * gaps.total() or not 0 < lost < len(numbers):
        return []
    missing = [n for earlier, later in whole for n in range(earlier + usual, later, usual)]
    message = f"every {usual} steps, but not of {listing(missing)}: were these files lost?"
    return [problem("steps_missing", "note", message)]


def _without_reward(steps: Sequence[Step]) -> list[Problem]:
    bare = [step.step for step in steps if not step.rewards]
    if not bare or len(bare) == len(steps):
        return []
    message = (
        f"there is no reward in {_named(bare)}, where other steps have one; was its column renamed?"
        " name it with --map reward=COLUMN, or read those steps by themselves"
    )
    return [problem("steps_without_reward", "warning", message)]


def _one_prompt(steps: Sequence[Step], *, scored: bool) -> list[Problem]:
    alone = [step.step for step in steps if step.prompts < 2]
    if not alone:
        return []
    refused = scored and len(alone) == len(steps)
    where = "" if len(steps) == 1 else f" in {_named(alone)}"
    return [
        problem(
            "one_prompt",
            "error" if refused else "warning",
            f"fewer than 2 distinct prompts{where}: nothing tells whether the"
            " responses depend on the prompt; analyse a dump with more"
            + (", or leave --ckpt out for the reward side alone" if refused else ""),
        )
    ]


def _repeats(keys: pl.DataFrame, places: Places) -> list[Problem]:
    """Steps that hold the very same rows, in any order."""
    if keys["step"].dtype == pl.Null:
        return []
    row = one_hash("prompt", "response", "reward")
    digests = keys.group_by("step").agg(pl.len().alias("rows"), row.sum().alias("digest"))
    again = (
        digests.drop_nulls("step")
        .filter(pl.col("rows") > 1)
        .sort("step")
        .group_by("rows", "digest", maintain_order=True)
        .agg("step")
        .filter(pl.col("step").list.len() > 1)
    )
    if again.is_empty():
        return []
    steps = again["step"].to_list()
    others = f", and {len(steps) - 1} more such sets" if len(steps) > 1 else ""
    return [
        problem(
            "steps_repeat",
            "warning",
            f"{_named(steps[0])} hold the very same rows{others}: trainers that use a batch"
            " several times write it each time; analyse one step of each",
            places.of_step(keys, steps[0][1]),
        )
    ]


def _named(steps: Sequence[int | None]) -> str:
    return f"{'step' if len(steps) == 1 else 'steps'} {listing(steps)}"
