"""Trainers that write a table of lists on a line, or lists around single values."""

import json
from pathlib import Path
from typing import Any

from dialect_files.case import Case, Row, chatml, lines

SUM, CITY = chatml("What is 6 * 7?"), chatml("Name the capital of France.")


def ms_swift(folder: Path) -> Case:
    """`completions.jsonl`: a line per logging step; turns and entropy are counts, not rewards."""
    nan = float("nan")
    steps = {
        "1": [(SUM, "<think>6*7</think>42", 1.0, 1.0, 0.5), (SUM, "41", 0.0, nan, -0.5)],
        "12": [
            (CITY, "Paris", 1.0, 0.0, nan),
            (CITY, "Rome", 0.0, 0.0, nan),
            (SUM, "7", 0.0, 1.0, 0.0),
        ],
    }
    records, expected = [], []
    for step, rows in steps.items():
        prompts, completions, accuracy, form, advantages = map(list, zip(*rows, strict=True))
        records.append(
            {"step": [step] * len(rows), "prompt": prompts, "completion": completions}
            | {"MathAccuracy": accuracy, "Format": form, "advantages": advantages}
            | {"solution": ["42"] * len(rows), "num_turns": [1] * len(rows)}
            | {"entropy": [0.75 + place for place in range(len(rows))]}
        )
        for prompt, completion, right, formed, advantage in rows:
            known = {"MathAccuracy": right} | ({} if formed != formed else {"Format": formed})
            expected.append(
                {"step": int(step), "group": prompt, "prompt": prompt, "response": completion}
                | {"reward": sum(known.values()), "components_have": known, "ground_truth": "42"}
                | {"advantage": None if advantage != advantage else advantage}
            )
    path = lines(folder / "v0-20260301-101500" / "completions.jsonl", records)
    return Case("ms_swift", (path,), "ms-swift", tuple(expected))


def ms_swift_rows(folder: Path) -> Case:
    """The Ray variant writes rows under the same file name."""
    rows = [
        (3, SUM, "42", 1.0),
        (3, SUM, "24", 0.0),
        (4, CITY, "Paris", 1.0),
        (4, CITY, "Rome", 0.0),
    ]
    path = lines(
        folder / "completions.jsonl",
        [{"gen_step": g, "prompt": p, "completion": c, "reward": r} for g, p, c, r in rows],
    )
    expected = tuple(
        {"step": g, "group": p, "prompt": p, "response": c, "reward": r} for g, p, c, r in rows
    )
    return Case("ms_swift_rows", (path,), "ms-swift", expected, clean=True)


def roll(folder: Path) -> Case:
    """ROLL's RLVR dump: a file is one line; prompt ids may share a text."""
    expected: list[Row] = []
    for step, rows in {
        3: [
            ("q7", SUM, "42", 1.0),
            ("q8", SUM, "41", 0.0),
            ("q7", SUM, "6", 0.0),
            ("q8", SUM, "42", 1.0),
        ],
        12: [("q9", CITY, "Paris", 1.0)],
    }.items():
        ids, prompts, responses, scores = map(list, zip(*rows, strict=True))
        count = len(rows)
        record = {"global_step": [step] * count, "id": ids, "source": ["gsm8k"] * count}
        record |= {"difficulty": [0.5] * count, "prompt": prompts}
        record |= {
            "messages": [json.dumps([{"role": "user", "content": "What is 6 * 7?"}])] * count
        }
        record |= {
            "ground_truth": ["42"] * count,
            "case_type": [""] * count,
            "tag": ["math"] * count,
        }
        record |= {"domain": ["math_rule"] * count, "responses": responses, "scores": scores}
        record |= {"sampling_params": [json.dumps({"temperature": 0.99, "top_p": 0.99})] * count}
        lines(folder / "dump" / f"rollout_dump_data.step_{step}.jsonl", [record])
        expected += [
            {
                "step": step,
                "group": i,
                "prompt": p,
                "response": r,
                "reward": s,
                "ground_truth": "42",
            }
            for i, p, r, s in rows
        ]
    return Case("roll", (folder / "dump",), "roll", tuple(expected), group_source="explicit")


def roll_board(folder: Path) -> Case:
    """ROLL's logging board: rows with a text per token."""
    rows = [
        (SUM, ["42", "<|im_end|>"], 1.0),
        (SUM, ["4", "1", "<|im_end|>"], 0.0),
        (CITY, ["Paris"], 1.0),
    ]
    records = []
    for prompt, tokens, reward in rows:
        floats = [-0.5] * len(tokens)
        records.append(
            {"prompt": prompt, "response": "".join(tokens), "response_tokens": tokens}
            | {"logprobs": floats, "ref_logprobs": floats, "values": [0.0] * len(tokens)}
            | {"token_rewards": [0.0] * len(tokens), "reward": reward, "step": 8}
        )
    path = lines(folder / "boarddata_20260301101500_123.jsonl", records)
    expected = tuple(
        {"step": 8, "group": p, "prompt": p, "response": "".join(t), "reward": r}
        for p, t, r in rows
    )
    return Case("roll_board", (path,), "roll", expected)


def nemo_rl(folder: Path) -> Case:
    """NeMo-RL: every value in a list of one, tokens padded to the batch, no roles and no step."""
    close, ask = "<|im_end|>", "<|im_start|>user\nwrong, again<|im_end|>\n<|im_start|>assistant\n"
    rows = [
        _nemo(0, [SUM, "<think>6*7</think>42" + close], 1.0, [1, 2], [[3, 4, 5]]),
        _nemo(1, [SUM, "41" + close, ask, "42" + close], 0.5, [1, 2], [[3, 4], [5], [6, 7]]),
        _nemo(2, [CITY, "Paris" + close], 1.0, [8, 9, 10], [[11]]),
        _nemo(3, [CITY, "Rome" + close], 0.0, [8, 9, 10], [[12, 13]]),
        # The same prompt again, not beside its first group.
        _nemo(4, [SUM, "6" + close], 0.0, [1, 2], [[6]]),
        _nemo(5, [SUM, "7" + close], 0.0, [1, 2], [[7]]),
    ]
    lines(folder / "exp_001" / "train_data_step3.jsonl", rows)
    tenth = [
        _nemo(0, [CITY, "Nice"], 0.0, [8, 9], [[1]]),
        _nemo(1, [CITY, "Paris"], 1.0, [8, 9], [[2]]),
    ]
    lines(folder / "exp_001" / "train_data_step10.jsonl", tenth)
    paths = tuple(folder / "exp_001" / f"train_data_step{step}.jsonl" for step in (3, 10))
    one = {"step": 3, "group": "a", "prompt": SUM}
    expected = (
        one
        | {"response": "<think>6*7</think>42" + close, "reward": 1.0, "prompt_ids": [1, 2]}
        | {"response_ids": [3, 4, 5], "rollout_logprobs": [-0.5, -0.5, -0.5]},
        one
        | {"response": "41" + close, "reward": 0.5, "trajectory": "t", "turn": 0}
        | {"prompt_ids": [1, 2], "response_ids": [3, 4], "rollout_logprobs": [-0.5, -0.5]},
        {"step": 3, "response": "42" + close, "reward": 0.5, "trajectory": "t", "turn": 1}
        | {"prompt": SUM + "41" + close + ask}
        | {"prompt_ids": [1, 2, 3, 4, 5], "response_ids": [6, 7]},
        {"step": 3, "group": "b", "prompt": CITY, "response": "Paris" + close, "reward": 1.0}
        | {"prompt_ids": [8, 9, 10], "response_ids": [11]},
        {"step": 3, "group": "b", "prompt": CITY, "response": "Rome" + close, "reward": 0.0},
        {"step": 3, "group": "c", "prompt": SUM, "response": "6" + close, "reward": 0.0},
        {"step": 3, "group": "c", "prompt": SUM, "response": "7" + close, "reward": 0.0},
        {"step": 10, "group": "d", "prompt": CITY, "response": "Nice", "reward": 0.0},
        {"step": 10, "group": "d", "prompt": CITY, "response": "Paris", "reward": 1.0},
    )
    return Case("nemo_rl", paths, "nemo-rl", expected, group_source="contiguous")


def _nemo(
    place: int, texts: list[str], reward: float, prompt: list[int], turns: list[list[int]]
) -> dict[str, Any]:
    """`turns` alternate: what the model sampled, what came back, what it sampled then."""
    ids, mask, width = list(prompt), [0] * len(prompt), 9
    for number, turn in enumerate(turns):
        ids, mask = ids + turn, mask + [1 - number % 2] * len(turn)
    length, pad = len(ids), [0] * (width - len(ids))
    logprobs = [-0.5 * one for one in mask] + [0.0] * len(pad)
    return {
        "content": [texts],
        "rewards": [reward],
        "input_lengths": [length],
        "token_ids": [ids + pad],
        "token_loss_mask": [mask + pad],
        "sample_loss_mask": [1.0],
        "advantages": [[reward - 0.5] * width],
        "generation_logprobs": [logprobs],
        "prev_logprobs": [[0.9 * one for one in logprobs]],
        "idx": place,
    }


def nemo_rl_0_3(folder: Path) -> Case:
    """The first version: texts, rewards and log-probs, the steps from 0."""
    records = [
        {"content": [[SUM, text]], "rewards": [reward], "generation_logprobs": [[0.0, -0.5]]}
        | {"prev_logprobs": [[0.0, -0.5]], "input_lengths": [2], "idx": place}
        for place, (text, reward) in enumerate([("42", 1.0), ("41", 0.0)])
    ]
    path = lines(folder / "train_data_step0.jsonl", records)
    expected = tuple(
        {"step": 0, "group": "g", "prompt": SUM, "response": t, "reward": r}
        for t, r in (("42", 1.0), ("41", 0.0))
    )
    return Case("nemo_rl_0_3", (path,), "nemo-rl", expected)


WRITERS = (ms_swift, ms_swift_rows, roll, roll_board, nemo_rl, nemo_rl_0_3)
