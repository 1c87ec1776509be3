"""ms-swift's `completions.jsonl`, one column per reward function, and the samples of its sampler.

Trainers log `step` (or `gen_step`), prompt, completion, the functions, `advantages` and details of
the generation; the prompt keeps its special tokens. The sampler writes whole conversations, of
which the last message alone is sampled, under an id of the prompt and without rewards.
"""

from collections.abc import Iterator

from ragen_diag.dumps.dialect import PLACE, Dialect, Draft, draft_by_functions
from ragen_diag.dumps.dialects.episodes import rows, without
from ragen_diag.dumps.raw import RawTable, Record
from ragen_diag.dumps.rewards import is_numeric
from ragen_diag.dumps.turns import is_conversation, turns

NAMES = {
    "step": "step",
    "gen_step": "step",
    "group_id": "group_id",
    "trajectory_id": "trajectory_id",
    "turn": "turn",
    "prompt": "prompt",
    "messages": "messages",
    "completion": "response",
    "response": "response",
    "finish_reason": "finish_reason",
    "advantages": "advantage",
    "solution": "ground_truth",
}
NO_REWARDS = frozenset(
    {
        "completion_length",
        "entropy",
        "id",
        "index",
        "is_truncated",
        "length",
        "num_turns",
        "response_length",
        "seed",
        "truncated",
    }
)
"""Numbers that are logged beside the reward functions and are none."""


def unfold(record: Record) -> Iterator[Record]:
    """A sampled conversation as the row of its last message; other records as they are."""
    messages = record.get("messages")
    if "completion" in record or not messages or not is_conversation(messages):
        yield record
        return
    shared = without(record, "messages", "id")
    shared |= {"group_id": record.get("id"), "trajectory_id": record[PLACE]}
    yield from rows(turns(messages, answers={len(messages) - 1}), shared)


def draft(raw: RawTable) -> Draft:
    """Numbers under unknown names are reward functions."""
    return draft_by_functions(
        raw, NAMES, lambda column: column.name not in NO_REWARDS and is_numeric(column)
    )


MS_SWIFT = Dialect(
    name="ms-swift",
    signatures=(
        frozenset({"prompt", "completion", "advantages"}),
        frozenset({"prompt", "completion", "gen_step"}),
        frozenset({"messages", "rejected_response", "id"}),
    ),
    draft=draft,
    unfold=unfold,
    telling=frozenset({"gen_step", "rejected_response"}),
    contiguous=True,
)
