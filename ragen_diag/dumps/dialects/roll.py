"""ROLL's `rollout_dump_data.step_{N}.jsonl`, one line of lists per step, and its logging board.

RLVR: prompt, responses, scores, the prompt's `id` and what the data set says of it. Agentic: JSON
text of the messages and of the trajectory. The board has a row per response, with the text of its
tokens and their log-probs under several models.
"""

from collections.abc import Iterator

from ragen_diag.dumps.dialect import PLACE, Dialect, Draft, draft_by_names
from ragen_diag.dumps.dialects.episodes import fields, number, rows, without
from ragen_diag.dumps.jsontext import from_json
from ragen_diag.dumps.raw import RawTable, Record
from ragen_diag.dumps.turns import as_conversation, turns

NAMES = {
    "global_step": "step",
    "step": "step",
    "id": "group_id",
    "trajectory_id": "trajectory_id",
    "turn": "turn",
    "responses": "response",
    "response": "response",
    "ground_truth": "ground_truth",
    "finish_reason": "finish_reason",
    "domain": "env",
    "logprobs": "rollout_logprobs",
}
REWARDS = ("scores", "reward")


def unfold(record: Record) -> Iterator[Record]:
    """An agent's trajectory as its turns; other records as they are."""
    messages = as_conversation(record.get("messages"))
    if "trajectory_data" not in record or messages is None:
        yield record
        return
    trajectory = fields(from_json(record["trajectory_data"]))
    reward = fields(trajectory.get("reward_info")).get("episode_reward")
    shared = without(record, "messages")
    shared |= {
        "trajectory_id": trajectory.get("trajectory_id") or record[PLACE],
        "reward": number(reward),
    }
    yield from rows(turns(messages), shared, unanswered=messages)


def draft(raw: RawTable) -> Draft:
    """The chat is the prompt where the data set has no other; the rest is kept as JSON."""
    asked = "prompt" if "prompt" in raw.frame.columns else "messages"
    return draft_by_names(raw, NAMES | {asked: asked}, reward=REWARDS)


ROLL = Dialect(
    name="roll",
    signatures=(
        frozenset({"responses", "scores"}),
        frozenset({"prompt", "response", "response_tokens"}),
        frozenset({"trajectory_data", "messages"}),
    ),
    draft=draft,
    unfold=unfold,
    telling=frozenset(
        {"case_type", "log_probs2", "sampling_params", "test_case_function", "trajectory_data"}
    ),
)
