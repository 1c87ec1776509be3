"""Trainers with a line per sample in trees of folders: AReaL, open-instruct, SkyRL, tinker."""

from pathlib import Path
from typing import Any

from dialect_files.case import Case, Row, chatml, document, lines

SUM, CITY = chatml("What is 6 * 7?"), chatml("Name the capital of France.")


def areal(folder: Path) -> Case:
    """AReaL: `{rollout}/{version}/{task}.jsonl`; a text without the end token was cut."""
    files = {
        (2, 11): [(SUM, "<think>6*7</think>42<|im_end|>", 1.0), (SUM, "<think>6*7 is \u03c0", 0.0)],
        (2, 9): [(SUM, "41<|im_end|>", 0.0), (SUM, "42<|im_end|>", 1.0)],
        (10, 11): [(SUM, "42<|im_end|>", 1.0), (SUM, "43<|im_end|>", 0.0)],
    }
    root, expected = folder / "logs" / "user" / "exp" / "trial" / "rollout", []
    for version, task in ((2, 9), (2, 11), (10, 11)):
        rows = files[version, task]
        lines(
            root / str(version) / f"{task}.jsonl",
            [
                {"task_id": task, "sample_idx": place, "seqlen": 20 + place, "prompt_len": 12}
                | {"head_version": version - 1, "tail_version": version, "reward": reward}
                | {"prompt": prompt, "completion": text}
                for place, (prompt, text, reward) in enumerate(rows)
            ],
            ascii_only=True,
        )
        expected += [
            {"step": version, "group": task, "prompt": prompt, "response": text, "reward": reward}
            | {"finish_reason": "stop" if text.endswith("<|im_end|>") else "length"}
            for prompt, text, reward in rows
        ]
    return Case("areal", (root,), "areal", tuple(expected), group_source="explicit")


def open_instruct(folder: Path) -> Case:
    """open-instruct: token ids and no text, prompts numbered anew every step, over two shards."""
    rows = [
        (1, 0, [5, 6], [7, 8, 2], 1.0, 0.5, "stop"),
        (1, 0, [5, 6], [7], 0.0, -0.5, "length"),
        (1, 1, [5, 9], [3, 2], 0.0, 0.0, "stop"),
        (1, 1, [5, 9], [4, 2], 0.0, 0.0, "stop"),
        (2, 0, [1, 1], [1, 2], 1.0, 1.0, "stop"),
    ]
    records, expected = [], []
    for place, (step, prompt, prompt_ids, ids, reward, advantage, reason) in enumerate(rows):
        records.append(
            {"step": step, "sample_idx": place % 4, "prompt_idx": prompt}
            | {"prompt_tokens": prompt_ids, "response_tokens": ids, "reward": reward}
            | {"advantage": advantage, "finish_reason": reason}
            | {"dataset": "gsm8k" if place % 2 else ["gsm8k", "math"], "ground_truth": [19, 17]}
            | {"request_info": None, "logprobs": [-0.25] * len(ids)}
        )
        expected.append(
            {"step": step, "group": prompt, "prompt_ids": prompt_ids, "response_ids": ids}
            | {"reward": reward, "advantage": advantage, "finish_reason": reason}
            | {"rollout_logprobs": [-0.25] * len(ids)}
        )
    name = "qwen_grpo__1__1767225600"
    lines(folder / f"{name}_rollouts_000000.jsonl", records[:3])
    lines(folder / f"{name}_rollouts_000001.jsonl", records[3:])
    about = {"run_name": name, "git_commit": "abc", "model_name": "m", "timestamp": "2026-03-01"}
    lines(folder / f"{name}_metadata.jsonl", [about])
    return Case(
        "open_instruct", (folder,), "open-instruct", tuple(expected), group_source="explicit"
    )


def skyrl(folder: Path) -> Case:
    """SkyRL's evaluation: a score or one per token, and a file of metrics that holds no rows."""
    rows = [
        (SUM, "<think>6*7</think>42<|im_end|>", 1.0, "stop"),
        (SUM, "41<|im_end|>", [0.0, 0.25, 0.5], "stop"),
        (CITY, "Paris is", 0.0, "length"),
    ]
    root = folder / "dumped_evals" / "global_step_5_evals"
    lines(
        root / "gsm8k.jsonl",
        [
            {"input_prompt": p, "output_response": o, "score": s, "stop_reason": r}
            | {"env_class": "gsm8k", "env_extras": {"extra_info": {"index": n}}}
            | {"data_source": "openai/gsm8k"}
            for n, (p, o, s, r) in enumerate(rows)
        ],
    )
    metrics = {"eval/openai_gsm8k/avg_score": 0.58, "eval/openai_gsm8k/pass_at_2": 0.5}
    lines(root / "aggregated_results.jsonl", [metrics])
    expected: list[Row] = [
        {"step": 5, "prompt": p, "response": o, "finish_reason": r}
        | {"reward": sum(s) if isinstance(s, list) else s}
        for p, o, s, r in rows
    ]
    return Case("skyrl", (folder / "dumped_evals",), "skyrl", tuple(expected))


def tinker(folder: Path) -> Case:
    """tinker: rewards and lengths and no text; groups are numbered anew every iteration."""
    expected: list[Row] = []
    for iteration, rewards in (
        (2, {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 0.5, (1, 1): 0.5}),
        (12, {(0, 0): 1.0}),
    ):
        records = [
            {"schema_version": 1, "split": "train", "iteration": iteration, "group_idx": group}
            | {"traj_idx": place, "tags": ["gsm8k"], "sampling_client_step": iteration}
            | {
                "total_reward": reward,
                "final_reward": reward,
                "trajectory_metrics": {"format": 1.0},
            }
            | {"steps": [_tinker_step(reward)], "final_ob_len": 0}
            for (group, place), reward in rewards.items()
        ]
        lines(folder / f"iteration_{iteration:06d}" / "train_rollout_summaries.jsonl", records)
        expected += [
            {"step": iteration, "group": group, "reward": reward, "split": "train"}
            for (group, _), reward in rewards.items()
        ]
    document(folder / "config.json", {"log_path": "logs/tinker"})
    return Case("tinker", (folder,), "tinker", tuple(expected), group_source="explicit")


def _tinker_step(reward: float) -> dict[str, Any]:
    return {"step_idx": 0, "ob_len": 31, "ac_len": 12, "reward": reward} | {
        "episode_done": True,
        "metrics": {},
        "logs": {},
    }


WRITERS = (areal, open_instruct, skyrl, tinker)
