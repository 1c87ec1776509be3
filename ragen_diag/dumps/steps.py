"""The training step of a file's rows, from its column or else from its name.

Knows no dialects; a step that column and name put differently is an error, not a choice.
"""

import re
from pathlib import Path

import polars as pl

from ragen_diag.errors import DumpError

_WORDS = r"(?:global_step|step|iteration|iter|rollout|completions|checkpoint|train_data_step)"
_NAMED = re.compile(rf"(?:^|[^a-z]){_WORDS}[-_=]?(\d+)(?!\d)", re.IGNORECASE)


def step_of_path(path: Path) -> int | None:
    """The step in a file's name, or else in its folder's.

    >>> [step_of_path(Path(name)) for name in ("12.jsonl", "step_00400.parquet", "a.parquet")]
    [12, 400, None]
    >>> step_of_path(Path("global_step_5/rollout.jsonl"))
    5
    """
    if re.fullmatch(r"[0-9]+", path.stem):
        return int(path.stem)
    for name in (path.stem, path.parent.name):
        found = _NAMED.findall(name)
        if found:
            return int(found[-1])
    return None


def fill_steps(step: pl.Series, row: pl.Series, path: Path) -> pl.Series:
    """`step` with its gaps filled from the file's name.

    Raises:
        DumpError: a row has another step than the name says; both are given.
    """
    named = step_of_path(path)
    if named is None:
        return step
    differs = (step != named).fill_null(False)
    at = differs.arg_max()
    if at is not None and differs[at]:
        raise DumpError(
            f"{path}: its name says step {named}, but row {row[at]} says step {step[at]}; "
            "rename the file or correct the column"
        )
    return step.fill_null(named)
