"""TRL's `completions_{step:05d}.parquet`: one float column per reward function, no total.

The weights of the reward functions are not in the file. Rows stand in generation order, so that
the completions of one prompt are neighbours. Tables of older versions hold one `reward`.
"""

from ragen_diag.dumps.dialect import Dialect, Draft
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
    "split": "split",
    "ground_truth": "ground_truth",
    "finish_reason": "finish_reason",
    "env": "env",
}
TOTAL = "reward"


def draft(raw: RawTable) -> Draft:
    """Every float besides step and advantage is a reward function, as TRL writes them.

    Other numbers may be lengths or seeds: they are reward functions only by name, and else kept
    as JSON. Without a column that is called "reward" the sum of the functions is the reward.
    """
    frame = raw.frame
    others = [name for name in frame.columns if name not in NAMES and name != TOTAL]
    functions = tuple(
        name
        for name in others
        if frame[name].dtype.is_float()
        or (is_numeric(frame[name]) and name.lower().endswith(("reward", "score")))
    )
    has_total = TOTAL in frame.columns
    return Draft(
        columns={new: frame[old] for old, new in NAMES.items() if old in frame.columns},
        reward=TOTAL if has_total else None,
        summed=() if has_total else functions,
        parts=functions,
        extra=tuple(name for name in others if name not in functions),
    )


TRL = Dialect(
    name="trl",
    signatures=(frozenset({"prompt", "completion"}),),
    draft=draft,
    contiguous=True,
)
