"""VAGEN's evaluation: a folder per episode with metrics.json (seed, success, cumulative_reward,
rewards per turn) and messages.json (content in parts, images taken out).

The model is taken to have seen all messages before an answer; a run that showed it the last one
only (`concat_multi_turn` off) does not say so.
"""

from collections.abc import Iterator

from ragen_diag.dumps.dialect import Dialect
from ragen_diag.dumps.dialects.episodes import draft_rows, ending, fields, number, rows, without
from ragen_diag.dumps.raw import Record
from ragen_diag.dumps.turns import as_conversation, turns

_NAMED = ("rollout_id", "env_name", "success", "cumulative_reward", "split")


def unfold(record: Record) -> Iterator[Record]:
    """The answers of one episode: `metrics`, `messages` and the name of its `folder`."""
    metrics = fields(record.get("metrics"))
    env, seed = metrics.get("env_name"), metrics.get("seed")
    success = number(metrics.get("success"))
    end = ending(metrics.get("finish_reason"))
    shared = {
        "group_id": None if env is None or seed is None else f"{env}:{seed}",
        "trajectory_id": metrics.get("rollout_id") or record.get("folder"),
        "reward": metrics.get("cumulative_reward"),
        "reward_components": {} if success is None else {"success": success},
        "env": env,
        "split": metrics.get("split"),
        "extra": without(metrics, *_NAMED) | without(record, "metrics", "messages"),
        "_flags": ["episode_error"] if end == "error" else [],
    }
    messages = as_conversation(record.get("messages")) or []
    yield from rows(turns(messages), shared, last=end, unanswered=messages)


VAGEN = Dialect(
    name="vagen",
    signatures=(frozenset({"metrics", "messages", "folder"}),),
    draft=draft_rows,
    unfold=unfold,
)
