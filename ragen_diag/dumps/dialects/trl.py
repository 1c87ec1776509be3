"""TRL's `completions_{step:05d}.parquet`: one float column per reward function, no total.

The weights of the reward functions are not in the file. Rows stand in generation order, so that
the completions of one prompt are neighbours. Tables of older versions hold one `reward`.
"""

import polars as pl

from ragen_diag.dumps.dialect import Dialect, Draft, draft_by_functions
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.rewards import is_numeric

NAMES = {
    "step": "step",
    "prompt": "prompt",
    "completion": "response",
    "advantage": "advantage",
    # No column of TRL's own, but what users log beside.
    "group_id": "group_id",
    "sample_id": "sample_id",
    "mode": "split",
    "split": "split",
    "ground_truth": "ground_truth",
    "finish_reason": "finish_reason",
    "env": "env",
}


def draft(raw: RawTable) -> Draft:
    """Every float besides step and advantage is a reward function, as TRL writes them.

    Other numbers may be lengths or seeds: they are reward functions only by name, and else kept
    as JSON.
    """
    return draft_by_functions(raw, NAMES, _is_function)


def _is_function(column: pl.Series) -> bool:
    if column.dtype.is_float():
        return True
    return is_numeric(column) and column.name.lower().endswith(("reward", "score"))


TRL = Dialect(
    name="trl",
    signatures=(frozenset({"prompt", "completion"}),),
    draft=draft,
    contiguous=True,
)
