"""tinker-cookbook's `{split}_rollout_summaries.jsonl`: rewards and lengths, no text.

`total_reward` is `final_reward`, which the whole trajectory got, and what its steps got.
"""

from collections.abc import Iterator

from ragen_diag.dumps.dialect import Dialect, Draft, draft_by_names
from ragen_diag.dumps.dialects.episodes import ending, fields
from ragen_diag.dumps.raw import RawTable, Record

NAMES = {
    "iteration": "step",
    "group_idx": "group_id",
    "sample_id": "sample_id",
    "split": "split",
    "finish_reason": "finish_reason",
}


def unfold(record: Record) -> Iterator[Record]:
    """The record with the length of its answers in tokens, and how the last one ended if known."""
    steps = record.get("steps")
    steps = [fields(step) for step in steps] if isinstance(steps, list) else []
    lengths = [step["ac_len"] for step in steps if isinstance(step.get("ac_len"), int)]
    yield {
        **record,
        "sample_id": f"{record.get('group_idx')}_{record.get('traj_idx')}",
        "finish_reason": ending(steps[-1].get("stop_reason")) if steps else None,
        "response_length": sum(lengths) if lengths else None,
    }


def draft(raw: RawTable) -> Draft:
    """Steps, metrics and tags are kept as JSON."""
    return draft_by_names(
        raw,
        NAMES,
        reward=("total_reward",),
        parts=lambda column: column.name == "final_reward",
        dropped=frozenset({"traj_idx"}),
    )


TINKER = Dialect(
    name="tinker",
    signatures=(frozenset({"iteration", "group_idx", "traj_idx", "total_reward"}),),
    draft=draft,
    unfold=unfold,
    telling=frozenset({"sampling_client_step", "trajectory_metrics"}),
)
