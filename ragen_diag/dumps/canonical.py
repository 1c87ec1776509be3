"""The canonical table itself: written by `convert`, by hand, or by a trainer's own script.

Needs `response` and one of `prompt`, `messages`, `prompt_ids`; every other column may be missing,
and columns under other names are kept as JSON.
"""

import polars as pl

from ragen_diag.dumps import columns
from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.rewards import Reward, is_numeric, one_column
from ragen_diag.rollouts import SCHEMA

REWARD_ALIASES = ("score", "rewards", "scores", "total_reward")


def draft(raw: RawTable, reward: str | None) -> Draft:
    """Columns under canonical names as they are; a further alias of the reward is only noted."""
    frame = raw.frame
    known = [name for name in frame.columns if name in SCHEMA and name != "reward"]
    extra = [name for name in frame.columns if name not in SCHEMA]
    named = "reward_components"
    parts = columns.components(frame[named])[0] if named in known else None
    keys = [] if parts is None else _keys(parts)
    chosen = _reward(frame, parts, keys, reward)
    if reward not in (None, "reward") and "reward" in frame.columns:
        extra.append("reward")
    aliases = [name for name in REWARD_ALIASES if name in frame.columns]
    doubled = reward is None and "reward" in frame.columns and aliases
    numeric = [name for name in ("reward", *extra) if name in frame.columns]
    return Draft(
        columns={name: frame[name] for name in known},
        reward=chosen,
        candidates=(*(name for name in numeric if is_numeric(frame[name])), *keys),
        extra=tuple(dict.fromkeys(extra)),
        notes={"two_reward_columns": frame.height} if doubled else {},
    )


def _reward(
    frame: pl.DataFrame, parts: pl.Series | None, keys: list[str], requested: str | None
) -> Reward | None:
    name = requested or "reward"
    if name in frame.columns:
        return one_column(frame[name])
    if parts is not None and name in keys:
        return one_column(columns.component(parts, name))
    return None


def _keys(parts: pl.Series) -> list[str]:
    keys = parts.explode().struct.field("key").drop_nulls()
    return keys.unique(maintain_order=True).to_list()


CANONICAL = Dialect(
    name="canonical",
    signatures=tuple(
        frozenset({source, "response"}) for source in ("prompt", "messages", "prompt_ids")
    ),
    draft=draft,
)
