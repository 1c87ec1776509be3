"""The canonical table itself: written by `convert`, by hand, or by a trainer's own script.

Needs `response` and one of `prompt`, `messages`, `prompt_ids`; every other column may be missing,
and columns under other names are kept as JSON.
"""

from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.raw import RawTable
from ragen_diag.rollouts import SCHEMA

REWARD = "reward"
REWARD_ALIASES = ("score", "rewards", "scores", "total_reward")


def draft(raw: RawTable) -> Draft:
    """Columns under canonical names as they are; a further alias of the reward is only noted."""
    frame = raw.frame
    has_reward = REWARD in frame.columns
    doubled = has_reward and any(name in frame.columns for name in REWARD_ALIASES)
    return Draft(
        columns={name: frame[name] for name in frame.columns if name in SCHEMA and name != REWARD},
        reward=REWARD if has_reward else None,
        extra=tuple(name for name in frame.columns if name not in SCHEMA),
        notes={"two_reward_columns": frame.height} if doubled else {},
    )


CANONICAL = Dialect(
    name="canonical",
    signatures=tuple(
        frozenset({source, "response"}) for source in ("prompt", "messages", "prompt_ids")
    ),
    draft=draft,
)
