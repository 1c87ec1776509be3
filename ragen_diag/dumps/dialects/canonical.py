"""The canonical table itself: written by `convert`, by hand, or by a trainer's own script.

Needs `response` and one of `prompt`, `messages`, `prompt_ids`; every other column may be missing.
What says which rows belong together, and what the policy did, is also known by its usual other
names; columns under further names are kept as JSON.
"""

from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.dialects.generic import known_columns, known_reward
from ragen_diag.dumps.raw import RawTable
from ragen_diag.rollouts import SCHEMA

OTHER_NAMES = (
    "step",
    "group_id",
    "trajectory_id",
    "turn",
    "split",
    "finish_reason",
    "prompt_ids",
    "response_ids",
    "rollout_logprobs",
)
"""Columns that are looked for under other names too: to miss one changes what is compared."""


def draft(raw: RawTable) -> Draft:
    """Columns under canonical names as they are, then those of `OTHER_NAMES` that are missing.

    Without a `reward` the only column that can be one is it; a further one is only noted.

    Raises:
        DumpError: several columns can be one that is missing.
    """
    frame = raw.frame
    own = {name: frame[name] for name in frame.columns if name in SCHEMA and name != "reward"}
    reward, notes = known_reward(frame)
    columns = own | known_columns(raw, [name for name in OTHER_NAMES if name not in own])
    used = {reward, *(column.name for column in columns.values())}
    return Draft(
        columns=columns,
        reward=reward,
        extra=tuple(name for name in frame.columns if name not in used),
        notes=notes,
    )


CANONICAL = Dialect(
    name="canonical",
    signatures=tuple(
        frozenset({source, "response"}) for source in ("prompt", "messages", "prompt_ids")
    ),
    draft=draft,
)
