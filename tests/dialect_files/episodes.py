"""Evaluations and trainers that keep whole conversations in a document or a line each."""

from pathlib import Path
from typing import Any

from dialect_files.case import Case, Row, document, lines, message, put


def spoken(*parts: str) -> list[tuple[str, str]]:
    """System, user, assistant, user, assistant, ... as the pairs that are compared."""
    roles = ["system", "user"] + ["assistant", "user"] * len(parts)
    return list(zip(roles, parts, strict=False))


def ragen(folder: Path) -> Case:
    """RAGEN's evaluation: no system prompt, a turn's reward pasted into the next observation."""
    talks = [
        (0, 0, ["P_ at 1", "<think>go</think><answer>Right</answer>", "P at 2 (reward: 1.0)"], 1.0),
        (1, 0, ["P_ at 1", "<answer>Left</answer>", "P at 0 (reward: 0.0)"], 0.0),
        (16, 1, ["P_ at 1", "<think>?</think><ans>Up</ans>", "same (reward: -0.1)"], 5.0),
    ]
    talks[2][2].extend(["<think>then</think><answer>Right</answer>", "done (reward: 5.1)"])
    records, expected = [], []
    for number, (env, group, texts, total) in enumerate(talks):
        roles = ["user", "assistant"] * 3
        said = [message(role, text) for role, text in zip(roles, texts, strict=False)]
        turns = len(texts) // 2
        about = {"env_id": env, "group_id": group, "num_turns": turns, "total_reward": total}
        about |= {"success": total > 0, "CoordSokoban/success": float(total > 0), "n_tokens": 40}
        records.append({"custom_id": f"traj_{number}", "messages": said, "metadata": about})
        for turn in range(turns):
            expected.append(
                {"group": group, "trajectory": number, "turn": turn, "reward": total}
                | {"messages": list(zip(roles, texts, strict=False))[: 2 * turn + 1]}
                | {"response": texts[2 * turn + 1], "step": None}
            )
    path = lines(folder / "results" / "eval" / "val_rollouts_20260301_101500.jsonl", records)
    return Case("ragen", (path,), "ragen", tuple(expected), group_source="explicit")


def vagen(folder: Path) -> Case:
    """VAGEN's evaluation: a folder per episode, one environment and seed being one problem."""
    root, tag = folder / "rollouts" / "eval_sokoban", "tag_sokoban_test"
    episodes = [
        (
            "20260301-182822-481f2321",
            20000,
            ["See.", "Way?", "left", "wall", "<think>r</think>right", "ok"],
            0.9,
        ),
        ("20260301-182822-f9aa0b17", 20000, ["See.", "Way?", "up", "done"], 0.1),
        ("20260301-182823-03c4d5e6", 20001, ["See.", "Way?", "down", "done"], -0.1),
    ]
    expected = []
    for name, seed, texts, reward in episodes:
        _vagen_episode(root / tag / name, seed, texts, reward)
        for turn in range(len(texts) // 2 - 1):
            expected.append(
                {
                    "group": seed,
                    "trajectory": name,
                    "turn": turn,
                    "reward": reward,
                    "env": "Sokoban",
                }
                | {"response": texts[2 * turn + 2], "step": None}
                | {"messages": spoken(*texts)[: 2 * turn + 2]}
            )
    document(root / tag / "summary.json", {"num_episodes": 3, "success_rate": 0.33})
    return Case("vagen", (root,), "vagen", tuple(expected))


def _vagen_episode(folder: Path, seed: int, texts: list[str], reward: float) -> None:
    said = [message(role, [{"type": "text", "text": text}]) for role, text in spoken(*texts)]
    turns = len(texts) // 2 - 1
    document(folder / "messages.json", said, ascii_only=False)
    document(folder / "assistant_texts.json", texts[2::2])
    put(folder / "transcript.txt", "\n".join(texts).encode())
    document(
        folder / "metrics.json",
        {"rollout_id": folder.name, "seed": seed, "terminated": True, "finish_reason": "done"}
        | {"success": reward > 0.5, "cumulative_reward": reward}
        | {
            "rewards": [0.0] * (turns - 1) + [reward],
            "num_turns": turns,
            "infos": [{}] * (turns + 1),
        }
        | {"env_config": {"render_mode": "text"}, "max_turns": 5, "tag_id": "sokoban_test"}
        | {"split": "default", "env_name": "Sokoban"},
    )


def rllm(folder: Path) -> Case:
    """rLLM: an indented file per episode, and a summary that is none."""
    root = folder / "logs" / "proj" / "exp" / "episodes" / "train_step_3_epoch_0"
    asked = [("system", "Solve."), ("user", "What is 6 * 7?")]
    retried = [*asked, ("assistant", "41"), ("user", "wrong, again")]
    other = [("system", "Solve."), ("user", "What is 2 + 2?")]
    episodes: list[tuple[str, str, str, list[tuple[list[tuple[str, str]], str]], float]] = [
        ("4f1c", "0", "max_response_length_exceeded", [(asked, "<think>6*7 is")], 0.0),
        ("4f1c", "1", "env_done", [(asked, "41"), (retried, "<think>7*6</think>42")], 1.0),
        ("a9d0", "0", "env_done", [(other, "4")], 1.0),
    ]
    expected: list[Row] = []
    names = []
    for task, rollout, reason, steps, reward in episodes:
        record = _rllm_episode(task, rollout, reason, steps, reward)
        names.append(f"episode_hash{record['task_hash']}_id{task}_{rollout}.json")
        document(root / names[-1], record)
        for turn, (before, text) in enumerate(steps):
            expected.append(
                {"step": 3, "group": task, "trajectory": (task, rollout), "turn": turn}
                | {"split": "train", "response": text, "messages": before, "reward": reward}
            )
    expected[0] = {**expected[0], "finish_reason": "length"}
    expected[3] = {**expected[3], "finish_reason": "stop"}
    summary = {"training_step": 3, "epoch": 0, "mode": "train", "num_episodes": 3}
    document(root / "batch_summary.json", summary | {"episode_files": names, "summary_stats": {}})
    return Case("rllm", (root.parent,), "rllm", tuple(expected), group_source="explicit")


def _rllm_episode(
    task: str,
    rollout: str,
    reason: str,
    steps: list[tuple[list[tuple[str, str]], str]],
    reward: float,
) -> dict[str, Any]:
    question = dict(steps[0][0])["user"]
    trajectory = {"name": "solver", "uid": f"u-{task}-{rollout}", "reward": reward}
    trajectory |= {"num_steps": len(steps), "timing": {}}
    trajectory["steps"] = [
        {"observation": {"question": question}, "thought": "", "action": text}
        | {"reward": reward if place == len(steps) - 1 else 0.0, "done": place == len(steps) - 1}
        | {"model_response": text, "timing": {}}
        | {"chat_completions": [message(r, c) for r, c in [*before, ("assistant", text)]]}
        for place, (before, text) in enumerate(steps)
    ]
    return {
        "training_step": 3,
        "epoch": 0,
        "episode_id": f"{task}:{rollout}",
        "session_id": None,
        "task": {"question": question, "ground_truth": "42", "data_source": "math"},
        "task_hash": (task * 2)[:8],
        "is_correct": reward > 0,
        "termination_reason": reason,
        "metrics": {"acc": reward},
        "metadata": {},
        "timing": {},
        "trajectories": [trajectory],
    }


def art(folder: Path) -> Case:
    """ART: a YAML list of groups, messages that were given beside choices that were sampled."""
    import yaml

    root = folder / ".art" / "proj" / "models" / "agent-001" / "trajectories" / "train"
    asked = [message("system", "Play 2048."), message("user", "board:\n| 2 | 4 |\n| _ | _ |")]
    again = [*asked, message("assistant", "<move>left</move>"), message("user", "board: yes: 8")]
    other = [message("user", "- another board")]
    groups = [
        [
            ([*asked, _choice("<move>left</move>"), again[-1], _choice("<move>up</move>")], 0.75),
            ([*asked, _choice("no")], -1),
        ],
        [([*other, _choice("<move>down</move>", "length")], 0.5)],
    ]
    records = [
        {
            "trajectories": [
                {"reward": reward, "metrics": {"score": reward}, "metadata": {"n": 1}}
                | {"messages_and_choices": said, "logs": []}
                for said, reward in group
            ]
        }
        for group in groups
    ]
    text = yaml.safe_dump(records, allow_unicode=True)
    put(root / "0003.yaml", text.encode())
    put(root.parent.parent / "history.jsonl", b'{"train/reward": 0.1, "step": 3}\n')
    pairs = [(one["role"], one["content"]) for one in again]
    expected = (
        {"step": 3, "group": 0, "trajectory": 0, "turn": 0, "reward": 0.75, "split": "train"}
        | {"messages": pairs[:2], "response": "<move>left</move>"},
        {"step": 3, "group": 0, "trajectory": 0, "turn": 1, "reward": 0.75, "messages": pairs}
        | {"response": "<move>up</move>"},
        {"step": 3, "group": 0, "trajectory": 1, "turn": 0, "reward": -1.0, "messages": pairs[:2]}
        | {"response": "no"},
        {"step": 3, "group": 1, "trajectory": 2, "turn": 0, "reward": 0.5}
        | {"messages": [("user", "- another board")], "response": "<move>down</move>"}
        | {"finish_reason": "length"},
    )
    return Case("art", (root,), "art", expected, group_source="explicit")


def _choice(text: str, reason: str = "stop") -> dict[str, Any]:
    said = {"content": text, "refusal": None, "role": "assistant", "tool_calls": None}
    return {"finish_reason": reason, "index": 0, "message": said}


WRITERS = (ragen, vagen, rllm, art)
