"""verifiers: the rows of its legacy evaluation, and the episodes of v1 that prime-rl writes too."""

import json
from pathlib import Path
from typing import Any

from dialect_files.case import Case, Row, document, lines, message, put

WORD = [message("system", "Play hangman."), message("user", "Guess a letter.")]
WORD_PAIRS = [(one["role"], one["content"]) for one in WORD]


def legacy(folder: Path) -> Case:
    """`results.jsonl`: the hidden word is not in the prompt, so only `example_id` tells groups."""
    call = json.dumps({"id": "call_1", "function": {"name": "python", "arguments": "{}"}})
    tool = {**message("assistant", ""), "tool_calls": [call]}
    answered = {**message("tool", "Out[1]: 42"), "tool_call_id": "call_1"}
    rows = [
        (0, [message("assistant", "<think>vowels</think>e")], 1.0, {}),
        (1, [message("assistant", "a")], 0.0, {}),
        (0, [message("assistant", "q q q")], 0.0, {"is_truncated": True}),
        (1, [tool, answered, message("assistant", "z")], 0.5, {}),
        (1, [message("assistant", "half a")], 0.0, {"error": _ERROR, "is_completed": False}),
    ]
    path = folder / "outputs" / "evals" / "hangman--gpt-4.1-mini" / "dbaac595" / "results.jsonl"
    lines(path, [_legacy_row(*row) for row in rows])
    about = {"env_id": "hangman", "model": "gpt-4.1-mini", "rollouts_per_example": 2}
    document(path.parent / "metadata.json", about | {"num_examples": 2, "avg_reward": 0.3})
    expected: list[Row] = []
    for number, (example, said, reward, flags) in enumerate(rows):
        one = {"group": example, "trajectory": number, "reward": reward, "messages": WORD_PAIRS}
        one |= {"components_have": {"won": reward}, "ground_truth": f"word{example}", "turn": 0}
        if len(said) == 1:
            reason = "error" if "error" in flags else "length" if flags else "stop"
            expected.append(one | {"response": said[0]["content"], "finish_reason": reason})
        else:
            expected.append(one | {"response_has": ["python"]})
            second = {"group": example, "trajectory": number, "turn": 1, "reward": reward}
            expected.append(second | {"response": "z"})
    return Case("verifiers", (path.parent,), "verifiers", tuple(expected), group_source="explicit")


_ERROR = {
    "error": "ModelError",
    "error_chain_repr": "ModelError()",
    "error_chain_str": "ModelError",
}


def _legacy_row(
    example: int, said: list[dict[str, Any]], reward: float, flags: dict[str, Any]
) -> dict[str, Any]:
    return {
        "example_id": example,
        "prompt": WORD,
        "completion": said,
        "answer": f"word{example}",
        "task": "hangman",
        "info": {"word": f"word{example}"},
        "reward": reward,
        "error": None,
        "timing": {"generation_ms": 812.5, "scoring_ms": 0.25, "total_ms": 812.75},
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "done",
        "metrics": {"won": reward, "num_turns": 1.0},
        "tool_defs": None,
        "won": reward,
        "num_turns": 1.0,
    } | flags


def old(folder: Path) -> Case:
    """2025's rows: the example is called `id`, times stand at the top, `task` is only "default"."""
    rows = [
        {"id": example, "prompt": [message("user", f"What is {example} + 1?")]}
        | {"completion": [message("assistant", text)], "task": "default", "generation_ms": 5.5}
        | {"scoring_ms": 0.5, "total_ms": 6.0, "info": {}, "answer": str(example + 1)}
        | {"reward": reward, "correct_answer_reward_func": reward}
        for example, text, reward in [(0, "1", 1.0), (1, "2", 1.0), (0, "0", 0.0), (1, "3", 0.0)]
    ]
    path = lines(folder / "results.jsonl", rows)
    expected = tuple(
        {"group": row["id"], "response": row["completion"][0]["content"], "reward": row["reward"]}
        | {"ground_truth": row["answer"]}
        for row in rows
    )
    return Case("verifiers_old", (path,), "verifiers", expected, group_source="explicit")


def prime_rl(folder: Path) -> Case:
    """prime-rl: episodes of several traces, keys without a value dropped, the last line torn."""
    root = folder / "run" / "rollouts" / "step_7" / "train" / "all"
    episodes = [
        _episode("e1", "g1", [("Who?", ["<think>me</think>I"], 1.0), ("Why?", ["so"], 0.0)]),
        _episode("e2", "g1", [("Who?", ["you", "he"], 0.5)]),
        _episode("e3", None, [("What?", ["this"], 1.0)]),
        _episode("e4", None, [("What?", ["that"], 0.0)]),
    ]
    packed = [json.dumps(one, separators=(",", ":")).encode() for one in episodes]
    packed.append(json.dumps(_episode("e5", None, [("What?", ["torn"], 0.0)])).encode()[:200])
    put(root / "traces.jsonl", b"\n".join(packed))
    lines(folder / "run" / "metrics.jsonl", [{"step": 7, "reward/mean": 0.5}])
    one = {"step": 7, "split": "train"}
    expected = (
        one
        | {"group": "g1", "trajectory": "e1-0", "turn": 0, "response": "<think>me</think>I"}
        | {"messages": [("system", "Answer."), ("user", "Who?")], "reward": 0.75}
        | {"components_have": {"correct": 1.0, "brief": 0.5}, "advantage": 0.25},
        one | {"trajectory": "e1-1", "turn": 0, "response": "so", "reward": -0.25},
        one | {"group": "g1", "trajectory": "e2-0", "turn": 0, "response": "you", "reward": 0.25},
        one
        | {"trajectory": "e2-0", "turn": 1, "response": "he", "reward": 0.25}
        | {
            "messages": [
                ("system", "Answer."),
                ("user", "Who?"),
                ("assistant", "you"),
                ("user", "?"),
            ]
        },
        one | {"group": "h", "trajectory": "e3-0", "turn": 0, "response": "this", "reward": 0.75},
        one | {"group": "h", "trajectory": "e4-0", "turn": 0, "response": "that", "reward": -0.25},
    )
    paths = (folder / "run" / "rollouts",)
    return Case("prime_rl", paths, "prime-rl", expected, notes={"torn_line": 1})


def _episode(
    name: str, group: str | None, traces: list[tuple[str, list[str], float]]
) -> dict[str, Any]:
    task = {"type": "Task", "data": {"idx": 1}, "key": f"task-{traces[0][0]}", "hash": "0f" * 16}
    record = {"id": name, "env": {"id": "quiz", "name": "quiz"}, "task": task}
    if group is not None:
        record["group"] = {"id": group}
    work = {"type": "train", "step": 7, "policy": {"start": 6, "end": 7}}
    record["run"] = {"type": "train", "id": "r1", "work": work}
    record |= {"ok": True, "errors": []}
    record["traces"] = [
        {"version": 1, "id": f"{name}-{place}", "task": task, "nodes": _nodes(asked, said)}
        | {"agent": {"name": "solver", "trainable": True, "config": {"model": "m"}}}
        | {"tools": [], "calls": [{"node": 2, "finish_reason": "stop"}]}
        | {
            "rewards": {
                "correct": {"score": score, "weight": 1.0},
                "brief": {"score": 0.5, "weight": -0.5},
            }
        }
        | {"metrics": {"num_turns": float(len(said))}, "info": {"advantage": score - 0.75}}
        | {"is_completed": True, "ok": True, "stop_condition": "done", "errors": []}
        | {"timing": {"start": 1767225600.0}}
        for place, (asked, said, score) in enumerate(traces)
    ]
    return record


def _nodes(asked: str, said: list[str]) -> list[dict[str, Any]]:
    texts = [("system", "Answer."), ("user", asked)]
    for place, text in enumerate(said):
        texts += [("user", "?"), ("assistant", text)] if place else [("assistant", text)]
    return [
        ({} if place == 0 else {"parent": place - 1})
        | {"message": message(role, text), "sampled": role == "assistant"}
        for place, (role, text) in enumerate(texts)
    ]


WRITERS = (legacy, old, prime_rl)
