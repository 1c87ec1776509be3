"""The training step of a file's rows, from its column, else its name, else its folders' names.

Knows no dialects; a step that column and name put differently is an error, not a choice.
"""

import re
from pathlib import PurePath

import polars as pl

from ragen_diag.errors import DumpError

_WORDS = r"(?:global_step|step|iteration|iter|rollout|completions|checkpoint|train_data_step)"
_LARGEST = 2**63 - 1
_LEVELS = 3
"""How many folders above a file may speak for it."""
_SPLIT = re.compile(
    r"(train|eval|val|validation|test)(?:[-_](?:rollout|data|step|batch|\d).*)?"
    r"|global_step_\d+_(eval)s?|(eval)_only"
)
_NAMED = re.compile(rf"(?:^|[^a-z]){_WORDS}[-_=]?(\d+)(?!\d)", re.IGNORECASE)


def step_of_name(name: str) -> int | None:
    """The step in the name of a file (without its ending) or folder; numbers past int64 are none.

    >>> [step_of_name(name) for name in ("step_00400", "exp-iter2", "global_step=3", "part-00001")]
    [400, 2, 3, None]
    """
    steps = [int(digits) for digits in _NAMED.findall(name)]
    return steps[-1] if steps and steps[-1] <= _LARGEST else None


def step_of_file(path: PurePath) -> int | None:
    """The step in a file's own name, which may be the step alone.

    >>> step_of_file(PurePath("global_step_5/12.jsonl"))
    12
    """
    alone = re.fullmatch(r"[0-9]+", path.stem)
    return step_of_name(f"step{path.stem}" if alone else path.stem)


def fill_steps(
    step: pl.Series, row: pl.Series, path: PurePath, *, by_name: bool = True
) -> pl.Series:
    """`step` with its gaps filled from the file's name.

    A folder's name, which may count something else, speaks only where nothing else does: the
    nearest that names a step. `by_name` is False where files are named after something else.

    Raises:
        DumpError: a row has another step than the file's name says; both are given.
    """
    named = step_of_file(path) if by_name else None
    if named is None:
        named = _step_of_folders(path)
        return step if named is None or step.is_not_null().any() else step.fill_null(named)
    differs = (step != named).fill_null(False)
    at = differs.arg_max()
    if at is not None and differs[at]:
        raise DumpError(
            f"{path}: its name says step {named}, but row {row[at]} says step {step[at]}; "
            "rename the file or correct the column"
        )
    return step.fill_null(named)


def split_of_path(path: PurePath) -> str | None:
    """The split that a file's name or its folders name, the nearest first.

    >>> [split_of_path(PurePath(name)) for name in ("eval/5.jsonl", "train_data_step5.jsonl")]
    ['eval', 'train']
    """
    for name in (path.stem, *(parent.name for parent in path.parents[:_LEVELS])):
        found = _SPLIT.fullmatch(name.lower())
        if found:
            return next(word for word in found.groups() if word).replace("validation", "val")
    return None


def _step_of_folders(path: PurePath) -> int | None:
    steps = (step_of_name(folder.name) for folder in path.parents[:_LEVELS])
    return next((step for step in steps if step is not None), None)
