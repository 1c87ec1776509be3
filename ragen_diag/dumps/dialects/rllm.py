"""rLLM's episodes, one JSON file each: task, is_correct, termination_reason and the trajectories of
its agents with their steps, written in training (episode_id, task_hash) or evaluation (id).

A step holds the messages up to and with its answer, or an observation and the answer alone.
"""

from collections.abc import Iterator
from typing import Any

from ragen_diag.dumps.dialect import SKIPPED, Dialect
from ragen_diag.dumps.dialects.episodes import (
    draft_rows,
    ending,
    fields,
    number,
    objects,
    own_ending,
    rows,
    scores,
    without,
)
from ragen_diag.dumps.raw import Record
from ragen_diag.dumps.turns import Message, Turn, as_conversation, last_turn, turns

_NAMED = ("trajectories", "task_hash", "training_step", "is_correct", "metrics")
_IDS = ("prompt_ids", "response_ids", "logprobs", "routing_matrices")
_ELSEWHERE = ("chat_completions", "model_response", "model_output", *_IDS)
_ONLY_AGENT = "default_traj_name"
_TRUTHS = ("ground_truth", "answer")


def unfold(record: Record) -> Iterator[Record]:
    """The answers of all agents of one episode."""
    trajectories = record.get("trajectories")
    if not isinstance(trajectories, list) or not trajectories:
        yield {SKIPPED: "episode_without_trajectory"}
        return
    for place, item in enumerate(trajectories):
        trajectory = fields(item)
        steps = objects(trajectory.get("steps"))
        if steps is None:
            yield {SKIPPED: "bad_trajectory"}
            continue
        name = trajectory.get("uid") or f"{_episode_id(record)}:{place}"
        shared = {"trajectory_id": name, **_shared(record, trajectory)}
        yield from _rows(steps, record, shared)


def _rows(steps: list[Record], record: Record, shared: Record) -> Iterator[Record]:
    def cells(turn: Turn) -> Record:
        step = steps[turn.index]
        own = own_ending(fields(step.get("model_output")).get("finish_reason"))
        if step.get("prompt_ids") and step.get("response_ids"):
            own |= {name: step[name] for name in ("prompt_ids", "response_ids")}
            own["rollout_logprobs"] = step.get("logprobs") or None
        extra = {**shared["extra"], "step": without(step, *_ELSEWHERE)}
        return {**own, "advantage": number(step.get("advantage")), "extra": extra}

    end = ending(record.get("termination_reason"))
    answers = [_turn(step, index) for index, step in enumerate(steps)]
    yield from rows(answers, shared, last=end, cells=cells)


def _shared(record: Record, trajectory: Record) -> Record:
    task = fields(record.get("task"))
    data = {**fields(task.get("metadata")), **task}
    correct = number(record.get("is_correct"))
    metrics, others = scores(fields(record.get("metrics")) | fields(trajectory.get("signals")))
    reward = trajectory.get("reward")
    return {
        "step": record.get("training_step"),
        "group_id": _group(record, trajectory, task),
        "reward": correct if reward is None else reward,
        "reward_components": metrics | ({} if correct is None else {"is_correct": correct}),
        "ground_truth": next((data[name] for name in _TRUTHS if name in data), None),
        "env": data.get("data_source"),
        "extra": {
            "episode": without(record, *_NAMED) | {"metrics": others},
            "trajectory": without(trajectory, "steps", "task", "signals"),
        },
    }


def _group(record: Record, trajectory: Record, task: Record) -> str | None:
    """The task, and the agent where it has a name: agents answer different prompts."""
    before, colon, _ = _episode_id(record).rpartition(":")
    names = (record.get("task_hash"), before if colon else None, task.get("id"))
    group = next((name for name in names if name is not None), None)
    agent = trajectory.get("name") or _ONLY_AGENT
    if group is None:
        return None
    return str(group) if agent == _ONLY_AGENT else f"{group}:{agent}"


def _episode_id(record: Record) -> str:
    return str(record.get("episode_id") or record.get("id") or "")


def _turn(step: Record, index: int) -> Turn:
    messages = as_conversation(step.get("chat_completions")) or []
    if messages and messages[-1].get("role") == "assistant":
        return last_turn(messages, index)
    text = next(
        (t for n in ("model_response", "output") if isinstance(t := step.get(n), str)), None
    )
    if not text and (before := list(turns(messages))):
        return last_turn(messages[: before[-1].position + 1], index)
    thought = step.get("thought")
    answer: dict[str, Any] = {"role": "assistant", "content": text}
    if isinstance(thought, str) and thought not in (text or ""):
        answer["reasoning"] = thought
    return last_turn([*(messages or _observed(step)), answer], index)


def _observed(step: Record) -> list[Message]:
    """What the agent was shown, where the step holds no messages and this is text or some."""
    for seen in (step.get("observation"), step.get("input")):
        if isinstance(seen, str) and seen:
            return as_conversation(seen) or [{"role": "user", "content": seen}]
        if messages := as_conversation(seen):
            return messages
    return []


RLLM = Dialect(
    name="rllm",
    signatures=(frozenset({"trajectories", "task", "is_correct"}),),
    draft=draft_rows,
    unfold=unfold,
    telling=frozenset({"episode_id", "task_hash", "termination_reason"}),
    file_names_step=False,
)
