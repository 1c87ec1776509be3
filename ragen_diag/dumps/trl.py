"""TRL's `completions_{step:05d}.parquet`: one float column per reward function, no total.

The weights of the reward functions are not in the file. Rows stand in generation order, so that
the completions of one prompt are neighbours.
"""

from ragen_diag.dumps.columns import as_components
from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.rewards import is_numeric, one_column, unweighted_sum

NAMES = {"step": "step", "prompt": "prompt", "completion": "response", "advantage": "advantage"}
TOTAL = "reward"


def draft(raw: RawTable, reward: str | None) -> Draft:
    """Every float besides step and advantage is a reward function, as TRL writes them.

    Other numbers may be lengths or seeds: they are reward functions only by name, and else kept
    as JSON. The reward is the column asked for, else one that is called "reward" (as older
    versions write it), else the unweighted sum of all, which are the row's components.
    """
    frame = raw.frame
    others = [name for name in frame.columns if name not in NAMES]
    numeric = [name for name in others if is_numeric(frame[name])]
    functions = [
        name
        for name in numeric
        if frame[name].dtype.is_float() or name.lower().endswith(("reward", "score"))
    ]
    notes: dict[str, int] = {}
    name = reward or (TOTAL if TOTAL in functions else None)
    if name is not None:
        chosen = one_column(frame[name]) if name in others else None
    elif functions:
        chosen = unweighted_sum([frame[name] for name in functions])
        if len(functions) > 1:
            notes["unweighted_reward_sum"] = frame.height
    else:
        chosen = None
    columns = {new: frame[old] for old, new in NAMES.items() if old in frame.columns}
    columns["reward_components"] = as_components([frame[f] for f in functions], frame.height)
    return Draft(
        columns=columns,
        reward=chosen,
        candidates=tuple(numeric),
        extra=tuple(name for name in others if name not in functions),
        notes=notes,
    )


TRL = Dialect(
    name="trl",
    signatures=(frozenset({"prompt", "completion"}),),
    draft=draft,
    contiguous=True,
)
