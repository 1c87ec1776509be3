"""slime: `torch.save` of plain values, which need no code of their own to be read."""

from pathlib import Path
from typing import Any

from dialect_files.case import Case, Row, chatml, message
from ragen_diag.settings import Reading

SUM = chatml("What is 6 * 7?")
ASKED = [message("system", "Solve."), message("user", "What is 6 * 7?")]


def texts(folder: Path) -> Case:
    """`--save-debug-rollout-data`: prompts as texts, rewards as numbers, one sample aborted."""
    samples = [
        _sample(0, 0, SUM, [1, 2, 3], [4, 5], "<think>6*7</think>42", 1.0, "completed"),
        _sample(0, 1, SUM, [1, 2, 3], [6], "<think>6", 0.0, "truncated"),
        _sample(1, 2, SUM, [1, 2, 3], [7, 8], "4", None, "aborted"),
        _sample(1, 3, SUM, [1, 2, 3], [7, 9], "tool broke", 0.0, "failed"),
    ]
    _save(folder / "rollout_2.pt", 2, samples)
    _save(folder / "rollout_10.pt", 10, [_sample(5, 20, SUM, [1], [2], "42", 1.0, "completed")])
    reasons = ["stop", "length", "abort", "error", "stop"]
    places = [(2, sample) for sample in samples] + [(10, {**samples[0], "group_index": 5})]
    expected: list[Row] = [
        {"step": step, "group": sample["group_index"], "prompt": SUM, "finish_reason": reason}
        for (step, sample), reason in zip(places, reasons, strict=True)
    ]
    expected[:4] = [
        row
        | {"response": sample["response"], "reward": sample["reward"], "ground_truth": "42"}
        | {"prompt_ids": [1, 2, 3], "response_ids": sample["tokens"][3:]}
        | {"rollout_logprobs": sample["rollout_log_probs"]}
        for row, sample in zip(expected, samples, strict=False)
    ]
    return Case("slime", (folder,), "slime", tuple(expected), group_source="explicit")


def objects(folder: Path) -> Case:
    """`--dump-details`: prompts as messages, rewards as objects, of which `score` is the reward."""
    path = folder / "details" / "rollout_data" / "4.pt"
    _save(path, 4, _judged())
    expected = tuple(
        {"step": 4, "group": 0, "response": text, "reward": score, "messages": pairs()}
        for text, score in (("42", 1.0), ("41", -1.0))
    )
    return Case("slime_objects", (path,), "slime", expected, group_source="explicit")


def keyed(folder: Path) -> Case:
    """The same file, with the reward chosen by its key."""
    path = folder / "4.pt"
    _save(path, 4, _judged())
    expected = tuple(
        {"step": 4, "group": 0, "response": text, "reward": part}
        for text, part in (("42", 0.25), ("41", 0.75))
    )
    return Case("slime_keyed", (path,), "slime", expected, Reading(reward_key="format"))


def pairs() -> list[tuple[str, str]]:
    """The prompt as it is compared."""
    return [(one["role"], one["content"]) for one in ASKED]


def _judged() -> list[dict[str, Any]]:
    return [
        _sample(0, 0, ASKED, [1], [2], "42", {"score": 1.0, "format": 0.25}, "completed"),
        _sample(0, 1, ASKED, [1], [3], "41", {"score": -1.0, "format": 0.75}, "completed"),
    ]


def _sample(
    group: int, index: int, prompt: Any, before: list[int], ids: list[int], *rest: Any
) -> dict[str, Any]:
    """The fields of a `Sample`, as its `to_dict` gives them; `rest`: response, reward, status."""
    response, reward, status = rest
    return {
        "group_index": group,
        "index": index,
        "prompt": prompt,
        "tokens": before + ids,
        "multimodal_inputs": None,
        "response": response,
        "response_length": len(ids),
        "label": "42",
        "reward": reward,
        "loss_mask": None,
        "weight_versions": ["3"],
        "rollout_log_probs": [-0.125 * (place + 1) for place in range(len(ids))],
        "rollout_routed_experts": None,
        "remove_sample": False,
        "teacher_log_probs": None,
        "status": status,
        "metadata": {"rm_type": "math"},
        "train_metadata": None,
        "session_id": None,
        "non_generation_time": 0.0,
        "spec_info": {"spec_accept_token_num": 0, "spec_draft_token_num": 0},
        "prefix_cache_info": {"cached_tokens": 0, "total_prompt_tokens": 0},
    }


def _save(path: Path, rollout_id: int, samples: list[dict[str, Any]]) -> None:
    import torch

    # One tensor among the values, as with `--use-rollout-routing-replay`.
    samples[0]["rollout_routed_experts"] = torch.zeros(2, 3, dtype=torch.int32)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"rollout_id": rollout_id, "samples": samples}, path)


WRITERS = (texts, objects, keyed)
