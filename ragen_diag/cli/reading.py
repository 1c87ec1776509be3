"""Options of every command that reads a dump, and the `Reading` that they make."""

import math
import os
import re
from collections.abc import Sequence
from typing import Annotated

import typer

from ragen_diag.errors import UsageError
from ragen_diag.settings import DuplicateSteps, Reading, Reduce

_PANEL = "Reading the dump"


DumpArgument = Annotated[
    list[str],
    typer.Argument(
        help="Rollout dump: files or folders, or s3://, gs:// and hf:// paths of Parquet files.",
        show_default=False,
    ),
]
RewardOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reward",
        help="Reward column or component; NAME=WEIGHT several times for a weighted sum; 'none' to"
        " go without.",
        show_default=False,
    ),
]
DialectOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_PANEL,
        help="How the dump is written (trl, verl, verl-agent, ...); default: told by its columns.",
        show_default=False,
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="NAME=COLUMN",
        rich_help_panel=_PANEL,
        help="Read COLUMN as NAME, as in --map response=output.",
        show_default=False,
    ),
]
RewardKeyOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_PANEL,
        help="Which value of a reward that is an object; default: score, reward or acc.",
        show_default=False,
    ),
]
RewardReduceOption = Annotated[
    Reduce | None,
    typer.Option(
        metavar="HOW",
        rich_help_panel=_PANEL,
        help="sum, last or mean of a reward that is a list, or that differs from turn to turn;"
        " default: sum.",
        show_default=False,
    ),
]
SplitOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_PANEL, help="Only rows of this split (train, eval).", show_default=False
    ),
]
DuplicateStepOption = Annotated[
    DuplicateSteps | None,
    typer.Option(
        "--on-duplicate-step",
        metavar="CHOICE",
        rich_help_panel=_PANEL,
        help="A step that was written twice, as after a resume: error, first, last or merge;"
        " default: last, in CI error.",
        show_default=False,
    ),
]
MaxBadOption = Annotated[
    str,
    typer.Option(
        "--max-bad-rows",
        metavar="SHARE",
        rich_help_panel=_PANEL,
        help="Largest share of lines or rewards that may be unreadable.",
    ),
]
MAX_BAD = "10%"
BaseModelOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel="Model",
        help="Base of a PEFT adapter, a folder or Hub id; default: the one that the adapter names.",
        show_default=False,
    ),
]


def make_reading(
    *,
    rewards: Sequence[str] | None,
    dialect: str | None,
    names: Sequence[str] | None,
    reward_key: str | None,
    reward_reduce: Reduce | None,
    split: str | None,
    on_duplicate_step: DuplicateSteps | None,
    max_bad_rows: str,
) -> Reading:
    """The choices as one value.

    Raises:
        UsageError: a text is not of the form that its option takes.
    """
    # A pipeline must not go on with half of what it thinks; a person sees the warning.
    default: DuplicateSteps = "error" if os.environ.get("CI", "") not in ("", "0") else "last"
    return Reading(
        dialect=dialect,
        names=dict(_pair("--map", text) for text in names or ()),
        rewards=tuple(_weighted(text) for text in rewards or ()),
        reward_key=reward_key,
        reward_reduce=reward_reduce,
        split=split,
        on_duplicate_step=on_duplicate_step or default,
        max_bad_share=_share(max_bad_rows),
    )


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, column = text.partition("=")
    if not equals or not name.strip() or not column.strip():
        raise UsageError(f"{option} {text!r}: give NAME=COLUMN, as in {option} response=output")
    return name.strip(), column.strip()


def _weighted(text: str) -> tuple[str, float]:
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1.0
    try:
        number = float(weight)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"--reward {text!r}: {weight!r} is no weight; give NAME=0.5")
    return name, number


def _share(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    share = float(found[1]) / (100 if found[2] else 1) if found else 2.0
    if share > 1:
        raise UsageError(f"--max-bad-rows {text!r}: give a share, such as 10% or 0.1")
    return share
