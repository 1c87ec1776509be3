"""The scalars that a training run logged, and how they meet the steps of its rollouts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ragen_diag.history.source import Kind


@dataclass(frozen=True, kw_only=True)
class History:
    """One log of scalars.

    `frame` has the columns `step` (i64), `name` (str) and `value` (f64, finite), sorted by step and
    name, each pair once. `restarts` are the steps, increasing, at which a resumed run logs again; a
    resume that was itself abandoned for an earlier one is not among them. `step_keys` counts the
    rows by what their step was called (empty for TensorBoard, which has no names for it): more than
    one may mean more than one way of counting. `left_out` counts by reason: rows (`no_step`,
    `unreadable_row`, `torn_last_row`), values (`undefined`, `not_a_number`, `logged_again`,
    `before_a_resume`), columns (`min_max_column`, `repeated_column`, `unnamed_column`), names
    (`name_repaired`) and files (`log_in_a_subfolder`).
    Names are as the trainer wrote them, control characters and all: escape them to show them.
    """

    paths: tuple[Path, ...]
    kind: Kind
    frame: pl.DataFrame
    restarts: tuple[int, ...]
    step_keys: Mapping[str, int]
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class Coverage:
    """Steps, increasing, by where they are found."""

    matched: tuple[int, ...]
    only_in_log: tuple[int, ...]
    only_in_run: tuple[int, ...]


def coverage(history: History, steps: Collection[int]) -> Coverage:
    """How the steps of a log and those of a run's rollouts meet: by number, never by position."""
    logged, of_run = set(history.frame["step"].to_list()), set(steps)
    return Coverage(
        matched=tuple(sorted(logged & of_run)),
        only_in_log=tuple(sorted(logged - of_run)),
        only_in_run=tuple(sorted(of_run - logged)),
    )
