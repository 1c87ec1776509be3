"""Turn scopes beside a slow reference: what a turn weighs, what is drawn anew, whose rewards."""

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import SAMPLE_RUNS, sample_dump
from test_scopes import TEMPLATE, WORDS, grouped, ids
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ragen_diag.dumps import read_dump
from ragen_diag.metrics.information import measure
from ragen_diag.metrics.uncertainty import bootstrap
from ragen_diag.pipeline import analyze
from ragen_diag.report.product import Product
from ragen_diag.rollouts import SCHEMA
from ragen_diag.settings import Scope, Settings


def written(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    path = tmp_path / "step_00003.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


# What turns weigh


def reference(logp_RP: np.ndarray, own_R: np.ndarray, turn_P: np.ndarray) -> dict[str, float]:
    """Turn by turn: the mean over its prompts, then over turns by the trajectories drawn there."""
    means: dict[str, float] = dict.fromkeys(("mi", "own", "mixture", "chance", "cap", "found"), 0.0)
    for turn in np.unique(turn_P):
        columns = np.flatnonzero(turn_P == turn)
        share = np.mean(turn_P[own_R] == turn)
        for p in columns:
            for r in np.flatnonzero(own_R == p):
                row = logp_RP[r, columns]
                mixture = math.log(sum(math.exp(x) for x in row) / len(columns))
                weight = share / len(columns) / np.sum(own_R == p)
                means["own"] += weight * logp_RP[r, p]
                means["mixture"] += weight * mixture
                means["mi"] += weight * (logp_RP[r, p] - mixture)
                means["found"] += weight * (columns[row.argmax()] == p)
                means["chance"] += weight / len(columns)
                means["cap"] += weight * math.log(len(columns))
    return means


def drawn_batch(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """4 tasks with 6 trajectories; at turn 1 each has a prompt of its own, and tells nothing."""
    rng = np.random.default_rng(seed)
    later_R = rng.integers(0, 2, 24).astype(bool)
    later_R[::6] = False
    own_R = np.where(later_R, 4 + later_R.cumsum() - 1, np.arange(24) // 6)
    turn_P = (np.arange(4 + later_R.sum()) >= 4).astype(int)
    logp_RP = rng.normal(-20, 1, (24, len(turn_P)))
    logp_RP[np.arange(24), own_R] += np.where(later_R, 0, 4)
    logp_RP[turn_P[own_R][:, None] != turn_P] = -np.inf
    return logp_RP, own_R, turn_P


def test_a_turn_weighs_by_the_trajectories_drawn_there() -> None:
    for seed in range(4):
        logp_RP, own_R, turn_P = drawn_batch(seed)
        metrics = measure(logp_RP, np.full(24, 5), own_R, resamples=200)
        expected = reference(logp_RP, own_R, turn_P)
        assert {
            "mi": metrics["mi_seq_estimate"].value,
            "own": -metrics["conditional_entropy_seq_est"].value,
            "mixture": -metrics["reasoning_entropy_seq_est"].value,
            "chance": metrics["retrieval_chance_level"].value,
            "cap": metrics["mi_upper_bound"].value,
            "found": metrics["retrieval_accuracy"].value,
        } == pytest.approx(expected, abs=1e-9)


def test_dealt_at_random_the_accuracy_is_chance() -> None:
    """All ways to deal three turns of 2, 3 and 1 + 1 prompts; what a turn weighs is no matter."""
    rng = np.random.default_rng(3)
    turn_P = np.array([0, 0, 1, 1, 1, 2, 2])
    own_R = np.array([0, 0, 0, 1, 2, 3, 4, 4, 5, 6, 6, 6, 6])
    logp_RP = rng.normal(-9, 1, (13, 7))
    logp_RP[turn_P[own_R][:, None] != turn_P] = -np.inf
    found = measure(logp_RP, np.full(13, 3), own_R, resamples=50)
    observed = reference(logp_RP, own_R, turn_P)["found"]
    deals = [
        np.array([*a, *(2 + np.array(b)), *(5 + np.array(c))])
        for a, b, c in product(
            [(0, 1), (1, 0)],
            [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)],
            [(0, 1), (1, 0)],
        )
    ]
    # Own rows keep their weight, only their label moves.
    weight_R = [
        np.mean(turn_P[own_R] == turn_P[p]) / np.sum(turn_P == turn_P[p]) / np.sum(own_R == p)
        for p in own_R
    ]
    accuracy = [float(np.dot(weight_R, logp_RP.argmax(axis=1) == deal[own_R])) for deal in deals]
    assert np.mean(accuracy) == pytest.approx(found["retrieval_chance_level"].value)
    reached = np.mean([value >= observed - 1e-9 for value in accuracy])
    assert found["retrieval_p_value"].value == pytest.approx(reached)
    assert found["retrieval_p_value"].n == 24


def test_histories_of_one_task_are_drawn_together() -> None:
    """A later turn has a prompt per trajectory, but no more tasks than the first."""
    rng = np.random.default_rng(0)
    tasks, each, covered = 8, 16, {"task": 0, "prompt": 0}
    task_R = np.repeat(np.arange(tasks), each)
    for trial in range(200):
        values_R = rng.normal(0, 1, tasks)[task_R] + rng.normal(0, 1, len(task_R))
        for name, cluster_R in (("task", task_R), ("prompt", None)):
            draws = bootstrap(
                np.arange(len(task_R)), cluster_R=cluster_R, resamples=500, seed=trial
            )
            found = draws.metric(draws.mean_over_prompts(values_R))
            covered[name] += found.low <= 0.0 <= found.high
    assert covered["task"] >= 0.9 * 200
    assert covered["prompt"] <= 0.75 * 200


def test_resamples_of_tasks_are_those_of_a_naive_loop() -> None:
    rng = np.random.default_rng(5)
    own_R = np.array([0, 0, 1, 2, 2, 3, 4, 5])
    block_R = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    task_R = np.array([7, 7, 8, 7, 7, 8, 8, 9])
    values_R = rng.normal(-40, 1, 8)
    draws = bootstrap(own_R, block_R=block_R, cluster_R=task_R, resamples=40, seed=1)
    # 3 of 8 rows are of the first block's two prompts, 5 of the other's four.
    weight_R = np.array([3 / 16 / 2, 3 / 16 / 2, 3 / 16, *[5 / 32 / 2] * 2, *[5 / 32] * 3])
    expected = []
    for drawn_C in draws.draws_BC:
        times_R = drawn_C[np.searchsorted([7, 8, 9], task_R)] * weight_R
        expected.append(times_R @ values_R / times_R.sum())
    np.testing.assert_allclose(draws.mean_over_prompts(values_R), expected, rtol=1e-12)


# A template that opens the reasoning itself


@pytest.fixture(scope="module")
def opening_tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="</s>")
    made.chat_template = TEMPLATE.replace("<|assistant|>{% endif", "<|assistant|> <think>{% endif")
    return made


@pytest.mark.parametrize("told", ["<think> ", "\n<think>\n", ""])
def test_the_open_tag_stands_once_whoever_tells_of_it(
    told: str, opening_tokenizer: PreTrainedTokenizerFast
) -> None:
    rows = []
    for task, turn in product("ab", range(2)):
        history = [{"role": "user", "content": task}]
        if turn:
            past = f"{told}m </think> d"
            history += [{"role": "assistant", "content": past}, {"role": "tool", "content": "c"}]
        rows.append(
            {
                "step": 3,
                "trajectory_id": task,
                "turn": turn,
                "messages": history,
                "response": f"{told}m {task} </think> d",
            }
        )
    table = pl.DataFrame([{name: row.get(name) for name in SCHEMA} for row in rows], schema=SCHEMA)
    groups = grouped(table, opening_tokenizer)
    for r, row in enumerate(rows):
        past = " <|assistant|> d </s> <|tool|> c </s>" if row["turn"] else ""
        x = f"<|user|> {row['trajectory_id']} </s>{past} <|assistant|>"
        assert groups.prompt_ids_P[groups.own_R[r]] == ids(x)
        assert groups.opening_ids_R[r] == ids("<think>")
        assert groups.reasoning_ids_R[r] == ids(f"m {row['trajectory_id']}")


# Trajectories


def test_a_named_trajectory_in_one_row_has_turns(tmp_path: Path) -> None:
    rows = []
    for task, number in product("ab", range(2)):
        answers = [
            message
            for turn in range(3)
            for message in (
                {"role": "assistant", "content": f"<think>m{turn}</think>x"},
                {"role": "user", "content": f"{turn}"},
            )
        ]
        rows.append(
            {
                "prompt": [{"role": "user", "content": task}],
                "response": answers,
                "reward": number,
                "group_id": task,
                "trajectory_id": f"{task}{number}",
            }
        )
    path = written(tmp_path, rows)
    table = read_dump([path]).table
    assert table.select("trajectory_id", "turn").rows() == [
        (f"{task}{number}", turn) for task, number, turn in product("ab", range(2), range(3))
    ]
    first = analyze(path, settings=Settings(resamples=20))
    assert first.result.counts.rows == 4 and first.result.inputs.dump.notes["later_turn"] == 8
    # Rows that each tell of one stretch of a trajectory say where it begins.
    for row in rows:
        row["turn"] = 2
    assert set(read_dump([written(tmp_path, rows)]).table["turn"]) == {2, 3, 4}


def steps_of_trajectories() -> list[dict[str, Any]]:
    """A row per turn, as step-wise trainers write: reward and success on the last one alone."""
    rows = []
    for name, task, turns, reward in (
        ("t0", "a", 3, 1.0),
        ("t1", "a", 2, 0.0),
        ("u0", "b", 2, 0.0),
        ("u1", "b", 3, 1.0),
    ):
        for turn in range(turns):
            earned = reward if turn == turns - 1 else 0.0
            rows.append(
                {
                    "step": 3,
                    "group_id": task,
                    "trajectory_id": name,
                    "turn": turn,
                    "prompt": task + "".join(f" {name}{k}" for k in range(turn)),
                    "response": f"<think>m {name}{turn}</think> y",
                    "reward": earned,
                    "reward_components": {"success": earned, "valid": 1.0, "cost": -0.1},
                }
            )
    return rows


def measured(path: Path, scope: str) -> Product:
    return analyze(path, settings=Settings(scope=Scope.parse(scope), resamples=20))


def test_success_is_that_of_the_trajectory(tmp_path: Path) -> None:
    path = written(tmp_path, steps_of_trajectories())
    for scope in ("first_turn", "trajectory_uniform", "turn_1"):
        result = measured(path, scope).result
        assert result.metrics["success_rate"].value == 0.5
        assert result.metrics["reward_mean"].value == 0.5
        assert "phantom_variance" not in {found.code for found in result.findings}


def test_only_turns_that_are_later_are_said_to_be(tmp_path: Path) -> None:
    rows = steps_of_trajectories()
    path = written(tmp_path, rows)

    def told(scope: str, path: Path = path) -> bool:
        return "later_turns" in {found.code for found in measured(path, scope).result.findings}

    assert not told("first_turn") and not told("turn_0")
    assert told("turn_1") and told("trajectory_uniform")
    single = written(tmp_path, [row for row in rows if row["turn"] == 0])
    assert not told("trajectory_uniform", single)


def test_intervals_of_later_turns_are_over_tasks(tmp_path: Path) -> None:
    first = pl.read_parquet(sample_dump("healthy", 0)).head(48)
    first = first.with_columns(trajectory_id=pl.col("sample_id"), turn=pl.lit(0, dtype=pl.Int32))
    later = first.with_columns(
        turn=pl.lit(1, dtype=pl.Int32),
        prompt=pl.col("prompt").str.replace("<think>", "") + pl.col("response") + " <think>",
        prompt_ids=None,
        sample_id=pl.col("sample_id") + "-later",
    )
    path = tmp_path / "step_00000.parquet"
    pl.concat([first, later], how="vertical_relaxed").write_parquet(path)
    settings = Settings(scope=Scope.parse("turn_1"), resamples=300, seed=4)
    ckpt = SAMPLE_RUNS / "healthy" / "checkpoints" / "step_00000"
    product = analyze(path, str(ckpt), settings=settings)
    scored = product.responses.drop_nulls("own")
    assert scored["own"].n_unique() > 2 * scored["group_id"].n_unique()
    draws = bootstrap(
        scored["own"].to_numpy(),
        cluster_R=np.unique(scored["group_id"].to_numpy(), return_inverse=True)[1],
        resamples=300,
        seed=4,
    )
    for name, values in (
        ("mi_seq_estimate", scored["matched"] - scored["marginal"]),
        ("reasoning_length", scored["n_tokens"].cast(pl.Float64)),
    ):
        expected = draws.metric(draws.mean_over_prompts(values.to_numpy()))
        found = product.result.metrics[name]
        assert (found.value, found.low, found.high) == pytest.approx(
            (expected.value, expected.low, expected.high)
        )
