"""Episodes of each trainer, as one record by hand, become a row per answer of the model."""

import json
from typing import Any

import numpy as np
import pytest

from ragen_diag.dumps.dialect import Dialect
from ragen_diag.dumps.dialects.art import ART
from ragen_diag.dumps.dialects.episodes import ending, scores
from ragen_diag.dumps.dialects.prime_rl import PRIME_RL
from ragen_diag.dumps.dialects.ragen import RAGEN
from ragen_diag.dumps.dialects.rllm import RLLM
from ragen_diag.dumps.dialects.vagen import VAGEN
from ragen_diag.dumps.dialects.verifiers import VERIFIERS
from ragen_diag.dumps.turns import as_conversation, content, plain, turns
from ragen_diag.rollouts import SCHEMA

Record = dict[str, Any]


def unfolded(dialect: Dialect, record: Record) -> list[Record]:
    assert dialect.unfold is not None
    placed = {"_place": "f:1", **json.loads(json.dumps(record))}
    rows = [dict(row) for row in dialect.unfold(placed)]
    assert all(set(row) <= set(SCHEMA) or set(row) == {"_skipped"} for row in rows)
    return rows


def said(role: str, content: Any, **more: Any) -> Record:
    return {"role": role, "content": content, **more}


def pick(rows: list[Record], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


# Turns


def test_one_conversation_is_the_same_however_it_is_written() -> None:
    chat = [said("user", "hi"), said("assistant", "yo")]
    parts = [said("user", [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]), chat[1]]
    ways = [chat, tuple(chat), np.array(chat, dtype=object), parts, json.dumps(parts)]
    for way in ways:
        found = as_conversation(way)
        assert found is not None
        assert plain(found) == chat


@pytest.mark.parametrize(
    "value",
    ["hi", "", "[]", '[{"role": "us', '["role"]', "[" * 100_000 + '"role"', 3, None, {"role": "x"}],
)
def test_what_is_no_conversation_is_none(value: object) -> None:
    assert as_conversation(value) is None


def test_what_an_api_took_out_of_the_text_comes_back() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    expected = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    for written in (call, json.dumps(call), call["function"]):
        message = said("assistant", None, reasoning_content="hm", tool_calls=[written])
        text, flags = content(message)
        assert text == f"<think>hm</think>\n{expected}"
        assert flags == ("reasoning_joined", "tool_calls_joined")
    assert content(said("tool", "3", tool_calls=[call])) == ("3", ())
    torn = said("assistant", "so", tool_calls=["{torn"])
    assert content(torn)[0] == "so\n<tool_call>\n{torn\n</tool_call>"


def test_parts_that_are_no_text_leave_a_placeholder_and_a_flag() -> None:
    image = {"type": "image_url", "image_url": {"url": "<data_url>"}}
    chat = [said("user", [image, {"type": "text", "text": "see"}]), said("assistant", "a")]
    (turn,) = turns(chat)
    assert turn.before == [said("user", "<image>see")]
    assert turn.flags == ("prompt_parts_left_out",)
    thought = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "4"}]
    assert content(said("assistant", thought)) == ("<think>hm</think>4", ("reasoning_joined",))
    assert content(said("user", 7)) == (None, ("parts_left_out",))


def test_messages_that_were_given_are_no_turns() -> None:
    chat = [said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d")]
    assert [(t.index, t.response, len(t.before)) for t in turns(chat, given=2)] == [(0, "d", 3)]
    assert [(t.position, t.response) for t in turns(chat, answers={1})] == [(1, "b")]


# What episodes share


def test_measures_are_no_scores() -> None:
    grades = {"acc": 1, "length_reward": 0.5, "solved": True}
    measures = {"n_tokens": 3, "generation_ms": 0.5, "seed": 1, "turns": 2, "name": "x"}
    found, rest = scores(grades | measures)
    assert found == {"acc": 1.0, "length_reward": 0.5, "solved": 1.0}
    assert rest == measures
    assert scores({"acc": 10**400}) == ({}, {"acc": 10**400})


def test_endings() -> None:
    words = ["tool_calls", "Length", "prompt_too_long", "timeout", "env_error", "own_rule", None]
    assert [ending(word) for word in words] == [
        *("stop", "length", "length", "abort", "error", "unknown", "unknown"),
    ]
    assert ending("own_rule", otherwise="stop") == "stop"


# RAGEN


def test_ragen() -> None:
    chat = [said("user", "s0"), said("assistant", "a0"), said("user", "s1 (reward: 1.0)")]
    metadata = {"env_id": 3, "group_id": 0, "num_turns": 2, "total_reward": 5.5, "success": False}
    metadata |= {"Sokoban/success": 1.0, "Sokoban/num_actions": 2, "Sokoban/pass@8": 1.0}
    metadata |= {"Sokoban/max_tile": 4, "entropy": 2.45, "n_tokens": 128}
    record = {"custom_id": "traj_7", "metadata": metadata}
    rows = unfolded(RAGEN, record | {"messages": [*chat, said("assistant", "a1")]})
    assert pick(rows, "turn", "response") == [(0, "a0"), (1, "a1")]
    assert [row["messages"] for row in rows] == [chat[:1], chat]
    names = ("group_id", "trajectory_id", "reward", "env")
    assert pick(rows, *names) == [("0", "traj_7", 5.5, "Sokoban")] * 2
    assert rows[0]["reward_components"] == {"success": 1.0, "max_tile": 4.0}
    assert rows[0]["extra"] == {"env_id": 3, "num_turns": 2, "entropy": 2.45, "n_tokens": 128} | {
        "num_actions": 2,
        "pass@8": 1.0,
    }


def test_ragen_without_an_answer_keeps_its_reward() -> None:
    record = {"custom_id": "t", "messages": [said("user", "s")], "metadata": {"total_reward": 0.0}}
    (row,) = unfolded(RAGEN, record)
    assert (row["response"], row["reward"], row["group_id"], row["turn"]) == (None, 0.0, None, 0)
    assert row["messages"] == [said("user", "s")]


# VAGEN


def test_vagen() -> None:
    image = {"type": "image_url", "image_url": {"url": "<data_url>"}}
    chat = [
        said("system", [{"type": "text", "text": "Play."}]),
        said("user", [{"type": "text", "text": "see "}, image]),
        said("assistant", [{"type": "text", "text": "left"}]),
        said("user", [{"type": "text", "text": "wall"}]),
        said("assistant", "right"),
        said("user", "done"),
    ]
    metrics = {"rollout_id": "r1", "seed": 4, "finish_reason": "max_turns", "success": False}
    metrics |= {"cumulative_reward": 0.01, "rewards": [0.0, 0.01], "split": "val"}
    metrics |= {"env_name": "Sokoban", "num_turns": 2}
    record = {"metrics": metrics, "messages": chat, "folder": "r1"}
    rows = unfolded(VAGEN, record)
    assert pick(rows, "response", "finish_reason") == [("left", "stop"), ("right", "stop")]
    assert rows[0]["messages"] == [said("system", "Play."), said("user", "see <image>")]
    names = ("group_id", "trajectory_id", "reward", "reward_components", "env", "split")
    assert (
        pick(rows, *names)
        == [
            ("Sokoban:4", "r1", 0.01, {"success": 0.0}, "Sokoban", "val"),
        ]
        * 2
    )
    assert rows[1]["extra"]["rewards"] == [0.0, 0.01]
    assert [row["_flags"] for row in rows] == [["prompt_parts_left_out"]] * 2
    metrics |= {"finish_reason": "env_error", "rollout_id": None}
    *_, last = unfolded(VAGEN, record)
    assert last["finish_reason"] == "error"
    assert last["trajectory_id"] == "r1"
    assert "episode_error" in last["_flags"]


# verifiers


def legacy(**fields: Any) -> Record:
    record = {"example_id": 5, "prompt": [said("user", "q")], "answer": "4", "reward": 0.5}
    return record | {"completion": [said("assistant", "a")], "task": "default"} | fields


def test_verifiers_turns_and_columns() -> None:
    given = [said("user", "q0"), said("assistant", "shown"), said("user", "q")]
    done = [said("assistant", "a"), said("tool", "out"), said("assistant", "b")]
    metrics = {"won": 0.5, "num_turns": 2.0}
    record = legacy(prompt=given, completion=done, metrics=metrics, is_truncated=True, **metrics)
    record |= {"timing": {"total_ms": 3.5}, "stop_condition": "prompt_too_long", "advantage": -0.5}
    rows = unfolded(VERIFIERS, record)
    assert pick(rows, "turn", "response", "finish_reason") == [(0, "a", "stop"), (1, "b", "length")]
    assert rows[1]["messages"] == [*given, *done[:2]]
    names = ("group_id", "reward", "advantage", "ground_truth", "env")
    assert pick(rows, *names) == [("5", 0.5, -0.5, "4", None)] * 2
    assert rows[0]["trajectory_id"] == rows[1]["trajectory_id"] is not None
    assert rows[0]["reward_components"] == {"won": 0.5}
    assert rows[0]["extra"] == {
        "num_turns": 2.0,
        "timing": {"total_ms": 3.5},
        "task": "default",
        "is_truncated": True,
        "stop_condition": "prompt_too_long",
    }


def test_verifiers_old_columns() -> None:
    record = legacy(correct_answer_reward_func=1.0, generation_ms=8.5, id=2)
    del record["example_id"]
    (row,) = unfolded(VERIFIERS, record)
    assert row["group_id"] == "2"
    assert row["reward_components"] == {"correct_answer_reward_func": 1.0}
    assert row["extra"] == {"generation_ms": 8.5, "task": "default"}
    assert row["finish_reason"] == "unknown"


def test_verifiers_texts_errors_and_environments() -> None:
    (row,) = unfolded(VERIFIERS, legacy(prompt="2+2=", completion="4", is_truncated=False))
    assert (row["prompt"], row["messages"], row["response"]) == ("2+2=", None, "4")
    assert row["finish_reason"] == "stop"
    (row,) = unfolded(VERIFIERS, legacy(prompt=None, completion=None, error={"error": "E"}))
    assert (row["response"], row["reward"], row["finish_reason"]) == (None, 0.5, "error")
    assert row["_flags"] == ["episode_error"]
    assert row["extra"]["error"] == {"error": "E"}
    (row,) = unfolded(VERIFIERS, legacy(task="wordle", trajectory=[{"tokens": [1]}]))
    assert (row["group_id"], row["env"]) == ("wordle:5", "wordle")
    assert row["_flags"] == ["token_trajectory_left_out"]


# prime-rl


def trace(*nodes: Record, **fields: Any) -> Record:
    found = {"id": "t", "agent": {"name": "agent", "trainable": True}, "nodes": list(nodes)}
    return found | {"rewards": {"right": {"score": 1.0, "weight": 2.0}}, "ok": True} | fields


def node(role: str, text: str, parent: int | None = None, **fields: Any) -> Record:
    found = {"message": said(role, text), "sampled": role == "assistant"} | fields
    return found if parent is None else found | {"parent": parent}


def episode(*traces: Record, **fields: Any) -> Record:
    task = {"type": "T", "data": {"answer": "4"}, "key": "k", "hash": "h"}
    found = {"id": "e", "env": {"id": "quiz"}, "task": task, "group": {"id": "g"}}
    return found | {"ok": True, "traces": list(traces)} | fields


def test_prime_rl_rewards_and_places() -> None:
    rewards = {"right": {"score": 1.0, "weight": 2.0}, "brief": {"score": 0.5, "weight": -0.5}}
    run = {"type": "train", "id": "r", "work": {"type": "eval", "step": 6}}
    one = trace(
        node("user", "q"),
        node("assistant", "a", 0),
        rewards=rewards | {"late": None},
        metrics={"acc": 1.0, "num_turns": 1.0},
        info={"advantage": 0.25},
        calls=[{"node": 1, "finish_reason": "length"}],
        stop_condition="agent_completed",
    )
    (row,) = unfolded(PRIME_RL, episode(one, run=run))
    assert row["reward"] == 2.0 - 0.25
    assert row["reward_components"] == {"right": 1.0, "brief": 0.5, "acc": 1.0}
    names = ("group_id", "trajectory_id", "turn", "split", "env", "ground_truth", "advantage")
    assert pick([row], *names) == [("g", "t", 0, "eval", "quiz", "4", 0.25)]
    assert (row["response"], row["finish_reason"]) == ("a", "length")
    assert row["_flags"] == ["null_component"]
    assert row["extra"]["trace"]["metrics"] == {"num_turns": 1.0}
    assert row["extra"]["trace"]["rewards"]["brief"]["weight"] == -0.5


def test_prime_rl_answers_are_what_was_sampled_each_with_its_own_way_back() -> None:
    # 0 q - 1 (shown) - 2 a - 3 more - 4 b, and after a compaction 5 summary - 6 c.
    nodes = [node("user", "q"), node("assistant", "shown", 0, sampled=False)]
    nodes += [node("assistant", "a", 1), node("user", "more", 2), node("assistant", "b", 3)]
    nodes += [node("user", "summary"), node("assistant", "c", 5)]
    rows = unfolded(PRIME_RL, episode(trace(*nodes, stop_condition="max_turns")))
    assert pick(rows, "turn", "response") == [(0, "a"), (1, "b"), (2, "c")]
    assert [[one["content"] for one in row["messages"]] for row in rows] == [
        ["q", "shown"],
        ["q", "shown", "a", "more"],
        ["summary"],
    ]
    assert [row["finish_reason"] for row in rows] == ["stop", "stop", "stop"]
    assert all(row["_flags"] == ["branched_trace"] for row in rows)


def test_prime_rl_ids_of_tokens_are_those_on_the_way() -> None:
    user = node("user", "q", token_ids=[1, 2], mask=[False, False])
    first = node("assistant", "a", 0, token_ids=[3, 4, 5], mask=[False, True, True])
    first |= {"logprobs": [-0.5, -1.0], "advantages": [0.25, 0.25]}
    tool = node("tool", "t", 1, token_ids=[6], mask=[False])
    second = node("assistant", "b", 2, token_ids=[7], mask=[True], logprobs=[-2.0])
    rows = unfolded(PRIME_RL, episode(trace(user, first, tool, second)))
    names = ("prompt_ids", "response_ids", "rollout_logprobs", "advantage")
    assert pick(rows, *names) == [
        ([1, 2, 3], [4, 5], [-0.5, -1.0], 0.25),
        ([1, 2, 3, 4, 5, 6], [7], [-2.0], None),
    ]
    del tool["token_ids"]
    first, second = unfolded(PRIME_RL, episode(trace(user, first, tool, second)))
    assert first["response_ids"] == [4, 5]
    assert "response_ids" not in second
    assert second["_flags"] == ["token_ids_left_out"]


def test_prime_rl_counts_what_is_no_answer_of_the_policy() -> None:
    said_so = [node("user", "q"), node("assistant", "a", 0)]
    judge = trace(*said_so, agent={"name": "judge", "trainable": False})
    failed = trace(id="t2", ok=False, rewards={}, stop_condition="error")
    solver = trace(*said_so, agent={"name": "solver", "trainable": True})
    rows = unfolded(PRIME_RL, episode(judge, {"nodes": ["?"]}, failed, solver, group=None))
    assert rows[0] == {"_skipped": "untrainable_trace"}
    assert rows[1] == {"_skipped": "bad_trace"}
    assert pick(rows[2:3], "response", "reward", "finish_reason") == [(None, None, "error")]
    assert rows[2]["_flags"] == ["episode_error"]
    assert rows[3]["group_id"] == "k:solver"
    assert unfolded(PRIME_RL, episode()) == [{"_skipped": "episode_without_trace"}]


def test_prime_rl_plain_messages_in_a_row_and_a_trace_alone() -> None:
    nodes = [said("user", "q"), said("assistant", "a"), said("user", "r"), said("assistant", "b")]
    record = trace(*nodes, rewards={"right": 0.5}, task={"key": "k"})
    rows = unfolded(PRIME_RL, record)
    assert pick(rows, "response", "reward", "group_id") == [("a", 0.5, "k"), ("b", 0.5, "k")]
    assert rows[1]["messages"] == nodes[:3]
    assert rows[0]["_flags"] == []


# rLLM


def test_rllm_training() -> None:
    asked = [said("user", "q")]
    retried = [*asked, said("assistant", "a"), said("user", "no")]
    steps = [
        {"chat_completions": [*chat, said("assistant", text)], "model_response": text}
        | {"observation": {"question": "q"}, "thought": "", "reward": reward, "done": bool(reward)}
        for chat, text, reward in [(asked, "a", 0.0), (retried, "b", 1.0)]
    ]
    solver = {"name": "solver", "uid": "u1", "reward": 1.0, "steps": steps}
    judge = {"name": "judge", "uid": "u2", "reward": None, "steps": steps[:1]}
    record = {"training_step": 3, "episode_id": "7:1", "task_hash": "ab", "is_correct": False}
    record |= {"task": {"question": "q", "ground_truth": "4", "data_source": "math"}}
    record |= {"termination_reason": "max_response_length_exceeded", "metrics": {"acc": 1}}
    rows = unfolded(RLLM, record | {"trajectories": [solver, judge, {"steps": 3}]})
    assert rows.pop() == {"_skipped": "bad_trajectory"}
    names = ("step", "group_id", "trajectory_id", "turn", "response", "reward", "finish_reason")
    assert pick(rows, *names) == [
        (3, "ab:solver", "u1", 0, "a", 1.0, "stop"),
        (3, "ab:solver", "u1", 1, "b", 1.0, "length"),
        (3, "ab:judge", "u2", 0, "a", 0.0, "length"),
    ]
    assert [row["messages"] for row in rows] == [asked, retried, asked]
    assert pick(rows[:1], "ground_truth", "env") == [("4", "math")]
    assert rows[0]["reward_components"] == {"acc": 1.0, "is_correct": 0.0}
    assert rows[1]["extra"]["step"]["reward"] == 1.0


def test_rllm_evaluation() -> None:
    step: Record = {"prompt_ids": [1], "response_ids": [2, 3], "logprobs": [-0.5, -1.5]}
    step |= {"chat_completions": [], "observation": "q", "model_response": "a", "thought": "hm"}
    cut = {"chat_completions": [said("user", "q"), said("assistant", "b"), said("user", "obs")]}
    told = {"input": "q2", "output": "c"}
    trajectory: Record = {"name": "default_traj_name", "uid": None, "reward": None}
    trajectory |= {"steps": [step, cut, told], "signals": {"accuracy": 1.0}}
    record: Record = {
        "id": "task-1:0",
        "task": None,
        "is_correct": True,
        "metadata": {},
        "metrics": {},
    }
    rows = unfolded(RLLM, record | {"trajectories": [trajectory]})
    assert pick(rows, "response", "messages") == [
        ("<think>hm</think>a", [said("user", "q")]),
        ("b", [said("user", "q")]),
        ("c", [said("user", "q2")]),
    ]
    ids = ("prompt_ids", "response_ids", "rollout_logprobs")
    assert pick(rows[:1], *ids) == [([1], [2, 3], [-0.5, -1.5])]
    names = ("group_id", "trajectory_id", "reward", "step")
    assert pick(rows, *names) == [("task-1", "task-1:0:0", 1.0, None)] * 3
    assert rows[0]["reward_components"] == {"accuracy": 1.0, "is_correct": 1.0}


# ART


def test_art() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "go", "arguments": "{}"}}
    choice: Record = {"finish_reason": "tool_calls", "index": 0, "message": {"content": None}}
    choice["message"]["tool_calls"] = [call]
    cut = {"finish_reason": "length", "index": 0, "message": said("assistant", "b")}
    talk = [said("user", "q"), choice, said("assistant", "put there"), said("user", "r"), cut]
    played = {"reward": -1, "metrics": {"score": 2, "duration": 0.5}, "metadata": {"id": "x"}}
    bare = {"reward": 0.5, "messages_and_choices": [said("user", "q"), said("assistant", "c")]}
    record: Record = {"_place": "f:2", "metadata": {"m": 1}, "trajectories": [None]}
    record["trajectories"] += [played | {"messages_and_choices": talk}, bare]
    skipped, *rows = unfolded(ART, record)
    assert skipped == {"_skipped": "bad_trajectory"}
    tool_call = '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>'
    names = ("group_id", "trajectory_id", "turn", "response", "reward", "finish_reason")
    assert pick(rows, *names) == [
        ("f:2", "f:2:1", 0, tool_call, -1, "stop"),
        ("f:2", "f:2:1", 1, "b", -1, "length"),
        ("f:2", "f:2:2", 0, "c", 0.5, "unknown"),
    ]
    assert [one["content"] for one in rows[1]["messages"]] == ["q", tool_call, "put there", "r"]
    assert rows[0]["reward_components"] == {"score": 2.0}
    assert rows[0]["extra"] == {
        "metadata": {"id": "x"},
        "metrics": {"duration": 0.5},
        "group": {"metadata": {"m": 1}},
    }
