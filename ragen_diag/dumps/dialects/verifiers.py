"""verifiers' `results.jsonl` (before its episodes) and prime-rl's `train_rollouts.jsonl` of the
same form: one trajectory per line, prompt and completion as lists of messages or as text.

The metrics stand in `metrics` and again as columns, in old files as columns alone. Old files call
the example `id`, which in some counted rows instead.
"""

from collections.abc import Iterator

from ragen_diag.dumps.dialect import PLACE, Dialect
from ragen_diag.dumps.dialects.episodes import (
    draft_rows,
    ending,
    fields,
    number,
    rows,
    scores,
    without,
)
from ragen_diag.dumps.raw import Record
from ragen_diag.dumps.turns import as_conversation, turns

_SAMPLE = ("prompt", "completion", "reward", "answer", "metrics", "trajectory")
_PLACE = ("example_id", "task", "env_name", "env_id", "step")
_ENDS = ("is_completed", "is_truncated", "stop_condition", "error")
_ANY_TASK = "default"


def unfold(record: Record) -> Iterator[Record]:
    """The answers of one trajectory."""
    prompt, completion = record.get("prompt"), record.get("completion")
    before, after = as_conversation(prompt), as_conversation(completion)
    shared = _shared(record)
    if before is None and isinstance(prompt, str):
        before = [{"role": "user", "content": prompt}]
        if after is None:
            shared["prompt"] = prompt
    before = before or []
    if after is None and isinstance(completion, str):
        after = [{"role": "assistant", "content": completion}]
    chat = [*before, *(after or [])]
    answers = turns(chat, given=len(before))
    for row in rows(answers, shared, last=_ending(record), unanswered=chat):
        yield {**row, "messages": None} if "prompt" in shared else row


def _shared(record: Record) -> Record:
    env = next((env for name in ("env_name", "env_id") if (env := record.get(name))), None)
    task = record.get("task")
    if env is None and isinstance(task, str) and task != _ANY_TASK:
        env = task
    example = record.get("example_id", record.get("id"))
    columns = without(record, *_SAMPLE, *_PLACE, *_ENDS, "" if "example_id" in record else "id")
    advantage = number(record.get("advantage"))
    if advantage is not None:
        del columns["advantage"]
    components, others = scores(columns | without(fields(record.get("metrics"))))
    kept = {name: record[name] for name in ("task", *_ENDS) if record.get(name) is not None}
    flags = {
        "episode_error": bool(record.get("error")),
        "token_trajectory_left_out": bool(record.get("trajectory")),
    }
    return {
        "step": record.get("step"),
        "group_id": None if example is None else _group(env, example),
        "trajectory_id": record[PLACE],
        "reward": record.get("reward"),
        "reward_components": components,
        "advantage": advantage,
        "ground_truth": record.get("answer"),
        "env": env,
        "extra": {**others, **kept},
        "_flags": [flag for flag, is_so in flags.items() if is_so],
    }


def _group(env: object, example: object) -> str:
    """Environments trained together number their examples each for itself."""
    return str(example) if env is None else f"{env}:{example}"


def _ending(record: Record) -> str:
    if record.get("error"):
        return "error"
    if record.get("is_truncated"):
        return "length"
    # Other words are names of an environment's own conditions.
    word = ending(record.get("stop_condition"), otherwise="stop")
    return "stop" if word == "unknown" and record.get("is_truncated") is False else word


VERIFIERS = Dialect(
    name="verifiers",
    signatures=tuple(
        frozenset({"prompt", "completion", "reward", *ids})
        for ids in (("example_id",), ("id", "task"), ("id", "info"), ("id", "answer"))
    ),
    draft=draft_rows,
    unfold=unfold,
    telling=frozenset({"example_id", "stop_condition", "generation_ms", "scoring_ms"}),
)
