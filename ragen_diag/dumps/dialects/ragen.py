"""RAGEN's `val_rollouts_*.jsonl` (evaluation): one trajectory per line, custom_id, messages and
metadata with env_id, group_id, num_turns, total_reward and the environment's metrics.

A turn's reward stands in the text of the next user message, as the model saw it. The metrics are
named `<environment>/...`; only there is `success` the environment's own.
"""

from collections.abc import Iterator
from typing import Any

from ragen_diag.dumps.dialect import Dialect
from ragen_diag.dumps.dialects.episodes import draft_rows, fields, rows, scores, without
from ragen_diag.dumps.raw import Record
from ragen_diag.dumps.turns import as_conversation, turns

_OF_ROLLOUT = ("env_id", "num_turns", "entropy", "n_tokens")


def unfold(record: Record) -> Iterator[Record]:
    """The answers of one trajectory."""
    metadata = fields(record.get("metadata"))
    metrics = without(metadata, "group_id", "total_reward", *_OF_ROLLOUT)
    env, metrics = _of_environment(metrics)
    # pass@k is the group's, so that it grades no trajectory.
    of_group = {name: value for name, value in metrics.items() if name.startswith("pass@")}
    components, others = scores(without(metrics, *of_group))
    group = metadata.get("group_id")
    kept = {name: metadata[name] for name in _OF_ROLLOUT if metadata.get(name) is not None}
    shared = {
        "group_id": None if group is None else str(group),
        "trajectory_id": record.get("custom_id"),
        "reward": metadata.get("total_reward"),
        "reward_components": components,
        "env": env,
        "extra": {
            **without(record, "custom_id", "messages", "metadata"),
            **kept,
            **others,
            **of_group,
        },
    }
    messages = as_conversation(record.get("messages")) or []
    yield from rows(turns(messages), shared, unanswered=messages)


def _of_environment(metrics: Record) -> tuple[str | None, Record]:
    """The environment that the metrics are named after, and the metrics without its name."""
    named: dict[str, dict[str, Any]] = {}
    for name, value in metrics.items():
        env, slash, metric = name.partition("/")
        if slash:
            named.setdefault(env, {})[metric] = value
    if len(named) != 1:
        return None, metrics
    ((env, own),) = named.items()
    general = {name: value for name, value in metrics.items() if "/" not in name}
    # The writer looks for `success` without the prefix, never finds it and writes False.
    return env, {**general, **own}


RAGEN = Dialect(
    name="ragen",
    signatures=(frozenset({"custom_id", "messages", "metadata"}),),
    draft=draft_rows,
    unfold=unfold,
)
