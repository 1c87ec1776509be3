"""verl, and the forks that dump like it: verl-agent, VAGEN."""

import json
from pathlib import Path
from typing import Any

from dialect_files.case import Case, Row, chat, chatml, lines
from ragen_diag.settings import Reading

SUM = chat("What is 6 * 7?")
WORD = chat("Guess the hidden word, one letter at a time.")
CITY = chat("Name the capital of France.")
GAME = chat("Make 24 from 3 and 8.")
OPEN = chat("Write a line of verse.")


def v0(folder: Path) -> Case:
    """The v0 trainer: rows in any order, no id; the files' order is by number, not by name."""
    second = [
        (WORD, "<think>vowels first</think>e", "grape", 0.0, {"acc": "False", "n_tools": "0"}),
        (SUM, "<think>6*7\u2028= 42</think>42", "42", 1.0, {"acc": "True", "n_tools": "3"}),
        (WORD, "<think>a is common</think>a", "apple", 1.0, {"acc": "True", "n_tools": "0"}),
        (CITY, "Paris\x85", ["Paris", "paris"], 1.0, {"acc": "True", "n_tools": "1"}),
        (SUM, "<think>guess</think>41", "42", 0.0, {"acc": "False", "n_tools": "2"}),
        (CITY, "Lyon", ["Paris", "paris"], 0.0, {"acc": "False", "n_tools": "1"}),
        (WORD, "<think>rare</think>z", "apple", 0.0, {"acc": "False", "n_tools": "0"}),
        (WORD, "<think>g?</think>g", "grape", 1.0, {"acc": "True", "n_tools": "0"}),
    ]
    tenth = [
        (GAME, "3*8", {"numbers": [3, 8], "target": 24}, 1.5, {"acc": 1.0}),
        (OPEN, "sun \U0001f31e over snow", None, 0.25, {"acc": 0.0}),
        (GAME, "3+8", {"numbers": [3, 8], "target": 24}, 0.5, {"acc": 0.0}),
        (OPEN, "rain", None, 0.75, {"acc": 0.0}),
    ]
    expected: list[Row] = []
    for step, rows in ((2, second), (10, tenth)):
        _dump(folder / "rollout" / f"{step}.jsonl", step, rows)
        expected += [
            {
                "step": step,
                "group": (prompt, str(truth)),
                "prompt": prompt,
                "response": response,
                "reward": score,
                "components": {name: _number(value) for name, value in extras.items()},
                "ground_truth": truth,
            }
            | ({} if truth is None else {"group_source": "derived_key"})
            for prompt, response, truth, score, extras in rows
        ]
    return Case("verl_v0", (folder / "rollout",), "verl", tuple(expected))


def _dump(path: Path, step: int, rows: list[tuple[str, str, Any, float, dict[str, Any]]]) -> None:
    lines(
        path,
        [
            {"input": i, "output": o, "gts": g, "score": s, "step": step, **e}
            for i, o, g, s, e in rows
        ],
    )


def _number(value: Any) -> float:
    return {"True": 1.0, "False": 0.0}[value] if value in ("True", "False") else float(value)


def v0_4(folder: Path) -> Case:
    """The first dumps: no ground truth, so nothing but the text tells groups apart."""
    rows = [(SUM, "42", 1.0), (OPEN, "sun", 0.0), (SUM, "43", 0.0), (OPEN, "moon", 0.0)]
    path = lines(
        folder / "1.jsonl", [{"input": i, "output": o, "score": s, "step": 1} for i, o, s in rows]
    )
    expected = tuple(
        {"step": 1, "group": i, "prompt": i, "response": o, "reward": s, "ground_truth": None}
        for i, o, s in rows
    )
    return Case("verl_v0_4", (path,), "verl", expected, group_source="prompt_text", clean=True)


def v0_8(folder: Path) -> Case:
    """`request_id` names a request, never a group."""
    rows = [(SUM, "42", 1.0, "9a1f"), (SUM, "6", 0.0, "77b0"), (SUM, "42", 1.0, "c3d4")]
    path = lines(
        folder / "20.jsonl",
        [
            {"input": i, "output": o, "gts": "42", "score": s, "step": 20, "request_id": r}
            for i, o, s, r in rows
        ],
    )
    expected = tuple({"step": 20, "group": i, "response": o, "reward": s} for i, o, s, _ in rows)
    return Case("verl_v0_8", (path,), "verl", expected, group_source="derived_key", clean=True)


def validation(folder: Path) -> Case:
    """A validation dump: `reward` repeats `score`, and is no second reward."""
    rows = [(SUM, "42", 1.0), (SUM, "41", -1.0), (CITY, "Paris", 1.0), (CITY, "Rome", -1.0)]
    path = lines(
        folder / "validation" / "40.jsonl",
        [
            {"input": i, "output": o, "gts": i[-20:], "score": s, "step": 40}
            | {"reward": s, "acc": s > 0, "pred": o}
            for i, o, s in rows
        ],
    )
    expected = tuple(
        {
            "step": 40,
            "group": i,
            "response": o,
            "reward": s,
            "components_have": {"acc": float(s > 0)},
        }
        for i, o, s in rows
    )
    return Case("verl_validation", (path.parent,), "verl", expected, group_source="derived_key")


def v1(folder: Path) -> Case:
    """The V1 trainer: `{uid}_{rollout}_{output}`, sorted; one rollout here has two outputs."""
    first = "0b0f6f2e-8f0c-4a57-9d0e-3c1f6c0d1a11"
    other = "5d7c2c1a-1b7e-4f3a-8a53-9be0c7f1d922"
    rows = [
        (SUM, "look it up", 1.0, first, 0, 0),
        (SUM + "look it up\nuser\nfound: 42\nassistant\n", "42", 1.0, first, 0, 1),
        (SUM, "41", 0.0, first, 1, 0),
        (SUM, "43", 0.0, other, 0, 0),
        (SUM, "7 * 6 = 42", 1.0, other, 1, 0),
    ]
    path = lines(
        folder / "300.jsonl",
        [
            {"input": i, "output": o, "gts": "42", "score": s, "step": 300, "uid": f"{u}_{r}_{n}"}
            for i, o, s, u, r, n in rows
        ],
    )
    expected = tuple(
        {"step": 300, "group": u, "trajectory": (u, r), "turn": n, "prompt": i, "response": o}
        | {"reward": s, "ground_truth": "42"}
        for i, o, s, u, r, n in rows
    )
    return Case("verl_v1", (path,), "verl", expected, group_source="explicit", clean=True)


AGENT = [
    (f"You are in the middle of a room. Step {turn}. Admissible actions: go, take.", action, score)
    for turn, action, score in [
        (1, "<think>look around</think><action>go</action>", 10.0),
        (2, "<think>a mug</think><action>take</action>", 10.0),
        (1, "<think>nothing</think><action>take</action>", 0.0),
        (2, "<think>still nothing</think><action>take</action>", 0.0),
        (3, "<think>give up</think><action>go</action>", 0.0),
    ]
]


def agent(folder: Path) -> Case:
    """verl-agent, named as such: the exact copies that filled the batch are dropped."""
    return Case(
        "verl_agent",
        (_agent_file(folder),),
        "verl-agent",
        tuple(_agent_rows()[:5]),
        Reading(dialect="verl-agent"),
        group_source="prompt_text",
        notes={"padding_copy": 3},
    )


def agent_unnamed(folder: Path) -> Case:
    """The same file: nothing tells a copy from a second sample, so all rows stay."""
    return Case("verl_agent_unnamed", (_agent_file(folder),), "verl", tuple(_agent_rows()))


def _agent_rows() -> list[Row]:
    turns = [AGENT[0], AGENT[1], AGENT[2], AGENT[3], AGENT[4], AGENT[1], AGENT[3], AGENT[1]]
    return [
        {"step": 5, "group": prompt, "prompt": prompt, "response": action, "reward": score}
        for prompt, action, score in turns
    ]


def _agent_file(folder: Path) -> Path:
    return lines(
        folder / "5.jsonl",
        [
            {"input": r["prompt"], "output": r["response"], "score": r["reward"], "step": 5}
            for r in _agent_rows()
        ],
    )


def vagen_train(folder: Path) -> Case:
    """VAGEN's training dump keeps special tokens; an environment has no truth to write."""
    prompt = chatml("<|vision_start|><|image_pad|><|vision_end|> Which way?")
    rows = [("<think>left</think><answer>Left</answer><|im_end|>", 0.5), ("up<|im_end|>", -0.1)]
    path = lines(
        folder / "7.jsonl",
        [
            {
                "input": prompt,
                "output": o,
                "gts": None,
                "score": s,
                "step": 7,
                "traj_success": s > 0,
            }
            for o, s in rows
        ],
    )
    expected = tuple(
        {"step": 7, "group": "g", "prompt": prompt, "response": o, "reward": s} for o, s in rows
    )
    return Case("vagen_train", (path.parent,), "verl", expected)


def wide_table(folder: Path) -> Case:
    """The W&B table of validation samples: a row per validation, a triple of columns per sample."""
    cells = {
        0: [(SUM, "41", 0.0), (CITY, "Rome", 0.0)],
        10: [(SUM, "42", 1.0), (CITY, "Oslo", 0.0)],
    }
    columns = ["step"] + [f"{name}_{n}" for n in (1, 2) for name in ("input", "output", "score")]
    data = [[step, *(cell for one in samples for cell in one)] for step, samples in cells.items()]
    path = folder / "wandb/run-20260301_101500-ab12cd34/files/media/table/val"
    path = path / "generations_10_0123456789abcdef0123.table.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"columns": columns, "data": data}), encoding="utf-8")
    expected = tuple(
        {"step": step, "group": i, "prompt": i, "response": o, "reward": s}
        for step, samples in cells.items()
        for i, o, s in samples
    )
    return Case("verl_wide_table", (path,), "verl", expected, group_source="prompt_text")


def long_table(folder: Path) -> Case:
    """The same samples in the long form, saved as CSV."""
    path = folder / "generations.csv"
    quoted = '"' + SUM + '"'
    path.write_text(f'step,input,output,score\n5,{quoted},007,1.0\n5,{quoted},"a, b",0\n')
    expected = tuple(
        {"step": 5, "group": "g", "prompt": SUM, "response": o, "reward": s}
        for o, s in (("007", 1.0), ("a, b", 0.0))
    )
    return Case("verl_long_table", (path,), "verl", expected, group_source="prompt_text")


WRITERS = (
    v0,
    v0_4,
    v0_8,
    validation,
    v1,
    agent,
    agent_unnamed,
    vagen_train,
    wide_table,
    long_table,
)
