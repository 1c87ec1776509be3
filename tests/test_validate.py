"""`validate` and the survey behind it: facts worked out by hand, and every problem it can tell."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import SAMPLE_RUNS, sample_dump
from dialect_files import REFUSED, WRITERS, Writer
from rich.console import Console

from ragen_diag.dumps import read_dump
from ragen_diag.metrics.reward import RewardRows, reward_signal
from ragen_diag.report.survey import MOST_LINES, print_survey, survey_lines
from ragen_diag.settings import Reading
from ragen_diag.survey import Problem, Survey, survey
from ragen_diag.survey import files as survey_files
from ragen_diag.survey.sample import Drawn

CHECKPOINT = SAMPLE_RUNS / "template_collapse" / "checkpoints" / "step_00000"
Row = dict[str, Any]


def lines(path: Path, rows: Sequence[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def batch(step: int | None = 1, prompts: int = 2, size: int = 2, **more: Any) -> list[Row]:
    """Rows of one step: rewards 0, 1, 0, ... within each group, a text of its own for each."""
    rows = [
        {
            "prompt": f"p{p} <think>",
            "response": f"{step} {p} {i}</think> x",
            "reward": i % 2,
            "group_id": f"g{p}",
        }
        for p in range(prompts)
        for i in range(size)
    ]
    return [{**row, **({} if step is None else {"step": step}), **more} for row in rows]


def codes(found: Survey) -> dict[str, str]:
    return {problem.code: problem.severity for problem in found.problems}


def told(found: Survey, code: str) -> Problem:
    return next(problem for problem in found.problems if problem.code == code)


# Facts


def test_facts_by_hand(tmp_path: Path) -> None:
    """Two groups of two vary (variance 1/2 and 2), one is flat; one row has no reward."""
    rows = batch(1) + batch(2)
    rows[2]["reward"] = 2.0
    rows[3]["reward"] = 0.0
    rows[4]["reward"] = rows[5]["reward"] = 1
    rows[7]["reward"] = None
    rows[7]["response"] = rows[6]["response"]
    found = survey(lines(tmp_path / "a.jsonl", rows))
    assert (found.dialect, found.rows, found.groups, found.prompts) == ("canonical", 8, 4, 2)
    assert found.steps == (1, 2)
    assert found.group_source == {"explicit": 8}
    assert [(s.rows, s.prompts, s.groups, s.compared_groups) for s in found.per_step] == [
        (4, 2, 2, 2),
        (4, 2, 2, 1),
    ]
    assert [step.flat_groups for step in found.per_step] == [0, 1]
    assert [step.reward_mean for step in found.per_step] == [0.75, pytest.approx(2 / 3)]
    assert found.reward is not None and found.reward_variance is not None
    assert (found.reward.numbers, found.reward.missing) == (7, {"null_reward": 1})
    assert (found.reward.min, found.reward.max) == (0.0, 2.0)
    assert found.reward.share_at_min == pytest.approx(3 / 7)
    variance = found.reward_variance
    assert (variance.flat, variance.compared, variance.singleton) == (1, 3, 1)
    assert variance.in_group_reward_var == pytest.approx((0.5 + 2.0 + 0.0) / 3)
    assert [bucket.rv_mean for bucket in variance.buckets] == [0.5, 2.0, None, None, None, None]
    assert found.texts is not None
    assert (found.texts.distinct_responses, found.texts.one_text_groups) == (7, 1)
    assert told(found, "null_reward").places == (f"{tmp_path / 'a.jsonl'} row 8",)
    assert found.usable


@pytest.mark.parametrize("write", WRITERS)
def test_counts_agree_with_the_reader(write: Writer, tmp_path: Path) -> None:
    """What is told from hashes is what the canonical table holds, for every trainer's files."""
    case = write(tmp_path)
    rollouts = read_dump(list(case.paths), reading=case.reading)
    found = survey(list(case.paths), case.reading)
    assert found.usable or not {p.code for p in found.problems if p.severity == "error"} - {
        "mixed_splits"
    }
    table, first = rollouts.table, rollouts.in_scope().table
    assert found.rows == table.height
    assert found.group_source == dict(Counter(table["group_source"]))
    assert found.trajectories == first.height
    assert found.steps == tuple(rollouts.steps)
    groups = [
        f"{step}|{split}|{group}"
        for step, split, group in first["step", "split", "group_id"].rows()
    ]
    assert found.groups == len(set(groups))
    assert found.reading_notes == {
        k: n for k, n in rollouts.notes.items() if k in found.reading_notes
    }
    assert found.reading_notes.keys() >= rollouts.notes.keys() - {"duplicate_sample_id"}
    rewards = first["reward"].fill_null(np.nan).to_numpy()
    _assert_same_variance(found, RewardRows(reward_N=rewards, group_N=groups))


def test_variance_agrees_with_the_metrics(tmp_path: Path) -> None:
    """Uneven groups in any order, with rewards that are missing, tied, or equal but for noise."""
    rng = np.random.default_rng(5)
    rows = [
        {
            "prompt": f"p{g}",
            "response": f"r{i}",
            "reward": float(rng.choice([0.1, 0.1 + 1e-12, 0.7, rng.random()])),
            "group_id": f"g{g}",
        }
        for i, g in enumerate(rng.integers(0, 60, 400).tolist())
    ]
    for place in rng.integers(0, 400, 40).tolist():
        rows[place]["reward"] = None
    for row in rows:
        if row["group_id"] == "g7":
            row["reward"] = 0.1
    found = survey(lines(tmp_path / "a.jsonl", rows))
    rewards = [np.nan if row["reward"] is None else row["reward"] for row in rows]
    _assert_same_variance(
        found,
        RewardRows(reward_N=np.array(rewards), group_N=[str(row["group_id"]) for row in rows]),
    )
    assert found.reward_variance is not None and found.reward_variance.flat >= 1


def _assert_same_variance(found: Survey, rows: RewardRows) -> None:
    signal, ours = reward_signal(rows), found.reward_variance
    assert ours is not None
    for name in ("groups", "compared", "flat", "flat_share", "unscored", "singleton"):
        assert getattr(ours, name) == signal.flat_groups[name]
    assert _near(ours.in_group_reward_var, signal.in_group_reward_var)
    for bucket, expected in zip(ours.buckets, signal.buckets, strict=True):
        assert bucket.groups == expected.groups
        for name in ("rv_min", "rv_mean", "rv_max", "std_mean"):
            assert _near(getattr(bucket, name), getattr(expected, name))


def _near(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and one == pytest.approx(other, rel=1e-12))


def test_the_sample_is_the_same_in_any_batches() -> None:
    size = 5000
    table = pl.DataFrame(
        {
            "prompt": [f"p{i}" for i in range(size)],
            "response": [f"r{i}" for i in range(size)],
            "finish_reason": ["stop"] * size,
            "prompt_ids": [[1, i] for i in range(size)],
            "response_ids": [None] * size,
        },
        schema_overrides={"response_ids": pl.List(pl.Int32), "prompt_ids": pl.List(pl.Int32)},
    )
    whole, parts = Drawn(most=50), Drawn(most=50)
    whole.add(table)
    for start in range(0, size, 7):
        parts.add(table[start : start + 7])
    assert whole.table().equals(parts.table())
    assert whole.table().height == 50
    assert whole.table()["largest_id"].max() > 1000
    places = [int(text[1:]) for text in whole.table()["prompt"]]
    assert 0.3 * size < np.mean(places) < 0.7 * size


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = batch(1, prompts=40, size=8, acc=1, fmt=2) + batch(2, prompts=40, size=8, acc=0)
    for row in rows:
        row["reward"] = rng.random()
    path = lines(tmp_path / "a.jsonl", [rows[i] for i in rng.permutation(len(rows))])
    assert survey(path).to_json() == survey(path).to_json()


def test_token_lengths_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    """Ids of the dump where it has them, the checkpoint's tokenizer where it has none: the same."""
    path = sample_dump("template_collapse", 0)
    texts = pl.read_parquet(path).drop(
        "prompt_ids", "response_ids", "rollout_logprobs", strict=False
    )
    texts.write_parquet(tmp_path / "texts.parquet")
    own = survey(path).sample
    counted = survey(tmp_path / "texts.parquet", tokenizer=str(CHECKPOINT)).sample
    blind = survey(tmp_path / "texts.parquet").sample
    assert own is not None and counted is not None and blind is not None
    assert own.response_tokens is not None
    assert own.lengths_by == "token ids of 256 sampled rows"
    assert (own.prompt_tokens, own.response_tokens) == (
        counted.prompt_tokens,
        counted.response_tokens,
    )
    assert blind.response_tokens is None and "--tokenizer" in blind.lengths_by


# Problems


def _rows(rows: Sequence[Row]) -> Callable[[Path], Path]:
    return lambda tmp: lines(tmp / "a.jsonl", rows)


def _without(rows: Sequence[Row], *names: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def _files(*batches: Sequence[Row]) -> Callable[[Path], Path]:
    def write(tmp: Path) -> Path:
        for number, rows in enumerate(batches, start=1):
            lines(tmp / "run" / f"step_{number}.jsonl", rows)
        return tmp / "run"

    return write


def _resumed(tmp: Path) -> Path:
    lines(tmp / "run" / "a" / "step_1.jsonl", batch(1))
    lines(tmp / "run" / "b" / "step_1.jsonl", [{**row, "reward": 0.5} for row in batch(1)])
    return tmp / "run"


def _trl(sizes: Sequence[int]) -> Callable[[Path], Path]:
    """TRL's table with one group of each size, in order."""

    def write(tmp: Path) -> Path:
        prompts = [f"p{g}" for g, size in enumerate(sizes) for _ in range(size)]
        table = pl.DataFrame(
            {
                "step": [5] * len(prompts),
                "prompt": prompts,
                "completion": [f"<think>{i}</think>" for i in range(len(prompts))],
                "accuracy_reward": [float(i % 2) for i in range(len(prompts))],
                "advantage": [0.0] * len(prompts),
            }
        )
        table.write_parquet(tmp / "completions_00005.parquet")
        return tmp / "completions_00005.parquet"

    return write


def _damaged(tmp: Path) -> Path:
    """A whole file beside one that lost its middle."""
    lines(tmp / "run" / "step_1.jsonl", batch(1))
    (tmp / "run" / "step_2.jsonl").write_text('{"prompt": "p"\n' * 5 + json.dumps(batch(2)[0]))
    return tmp / "run"


def _wandb(tmp: Path) -> Path:
    data = [[1, f"p{i // 2}", f"r{i}", i % 2] for i in range(10_000)]
    path = tmp / "completions_1_ab.table.json"
    path.write_text(json.dumps({"columns": ["step", "prompt", "response", "reward"], "data": data}))
    return path


def _verl_copies(tmp: Path) -> Path:
    rows = [{"input": "p", "output": f"{i % 3}", "score": 0.0, "step": 1} for i in range(4)]
    return lines(tmp / "1.jsonl", [*rows, {"input": "q", "output": "r", "score": 1.0, "step": 1}])


def _swapped(rows: Sequence[Row], **names: str) -> list[Row]:
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def _verl(rows: Sequence[Row]) -> list[Row]:
    names = {"prompt": "input", "response": "output", "reward": "score"}
    return _swapped(_without(rows, "group_id"), **names)


STEPS = [batch(step) for step in range(1, 6)]

PROBLEMS: Mapping[str, tuple[Callable[[Path], Path], Reading, str, str]] = {
    "no_reward": (_rows(_swapped(batch(), reward="quality")), Reading(), "error", "--reward qual"),
    "reward_is_no_number": (_rows(batch(reward="good")), Reading(), "error", "'good'"),
    "too_many_bad_rewards": (
        _rows(batch(prompts=20) + batch(prompts=6, reward="n/a")),
        Reading(),
        "error",
        "12 of 52",
    ),
    "no_such_split": (_rows(batch(split="train")), Reading(split="eval"), "error", "train"),
    "step_written_twice": (_resumed, Reading(), "error", "--on-duplicate-step"),
    "mixed_groups": (_rows([{**row, "group_id": "g"} for row in batch()]), Reading(), "error", "g"),
    "mixed_splits": (
        _rows(batch(split="train") + _without(batch(prompts=1, split="eval"), "group_id")),
        Reading(),
        "error",
        "--split",
    ),
    "several_splits": (
        _files(batch(1, split="train"), batch(2, split="eval")),
        Reading(),
        "warning",
        "eval 4, train 4",
    ),
    "unreadable": (_damaged, Reading(), "error", "step_2.jsonl"),
    "unknown_dialect": (_rows([{"loss": 1.0, "lr": 0.1}]), Reading(), "error", "loss"),
    "empty_file": (_rows([]), Reading(), "error", "0 bytes"),
    "null_reward": (
        _rows([*batch()[1:], {**batch()[0], "reward": None}]),
        Reading(),
        "warning",
        "1 of 4 rows",
    ),
    "constant_reward": (
        _rows([{**row, "reward": 1, "acc": i % 2} for i, row in enumerate(batch())]),
        Reading(),
        "warning",
        "--reward acc",
    ),
    "groups_by_prompt_text": (_rows(_without(batch(), "group_id")), Reading(), "warning", "4 rows"),
    "all_singletons": (_rows(batch(prompts=4, size=1)), Reading(), "warning", "4 groups"),
    "groups_merged": (_trl([4, 4, 8, 4]), Reading(), "warning", "1 of 4 groups"),
    "partial_groups": (_trl([4, 4, 4, 3]), Reading(), "warning", "1 of 4 groups"),
    "uneven_groups": (_rows(batch()[:3]), Reading(), "note", "1 to 2"),
    "prompt_in_several_groups": (
        _rows(batch() + [{**row, "group_id": "h"} for row in batch(prompts=1)]),
        Reading(),
        "note",
        "1 prompts",
    ),
    "one_prompt": (_rows(batch(prompts=1)), Reading(), "warning", "fewer than 2"),
    "no_step": (_rows(batch(None)), Reading(), "note", "post-mortem"),
    "few_rows_in_step": (
        _files(*STEPS[:3], STEPS[3][:1] + STEPS[3][2:3], STEPS[4]),
        Reading(),
        "warning",
        "step 4: 2 rows, where the median is 4",
    ),
    "few_prompts_in_step": (
        _files(batch(1, 4), batch(2, 4), batch(3, 2, 4)),
        Reading(),
        "warning",
        "step 3: 2 prompts",
    ),
    "many_rows_in_step": (
        _files(*STEPS[:3], batch(4, prompts=4)),
        Reading(),
        "warning",
        "step 4: 8 rows",
    ),
    "steps_missing": (
        _rows([row for step in (0, 10, 20, 30, 40, 60) for row in batch(step)]),
        Reading(),
        "note",
        "every 10 steps, but not of 50",
    ),
    "steps_without_reward": (
        _rows(batch(1) + batch(2, reward=None) + batch(3)),
        Reading(),
        "warning",
        "no reward in step 2, where",
    ),
    "steps_repeat": (
        _rows(batch(1) + [{**row, "step": 2} for row in reversed(batch(1))]),
        Reading(),
        "warning",
        "steps 1, 2 hold the very same rows",
    ),
    "reward_column_missing": (
        _files(_verl(batch(1, acc=1)), _verl(batch(2)), _verl(batch(3, acc=0))),
        Reading(),
        "warning",
        "acc holds values in 2 of 3 files only, and not in file ",
    ),
    "component_missing_in_a_step": (
        _rows(
            batch(1, reward_components={"acc": 1.0, "fmt": 1.0})
            + batch(2, reward_components={"fmt": 0.5})
        ),
        Reading(),
        "warning",
        "acc holds values in 1 of 2 steps only, and not in step 2",
    ),
    "columns_differ": (
        _files(batch(1, note="n"), batch(2), batch(3)),
        Reading(),
        "note",
        "note holds values in 1 of 3 files only",
    ),
    "table_cut": (_wandb, Reading(), "warning", "exactly 10,000 rows"),
    "exact_copies": (_verl_copies, Reading(), "note", "1 rows equal an earlier one"),
    "no_reasoning_tags": (
        _rows([{**row, "prompt": row["prompt"][:2], "response": "x"} for row in batch()]),
        Reading(),
        "note",
        "--reasoning-tags",
    ),
    "few_valid_spans": (
        _rows([{**row, "response": f"r{i}"} if i else row for i, row in enumerate(batch())]),
        Reading(),
        "warning",
        "1 of 4 sampled responses",
    ),
    "truncated": (_rows(batch(finish_reason="length")), Reading(), "warning", "100%"),
    "ids_unique_per_row": (
        _rows([{**row, "group_id": str(i)} for i, row in enumerate(batch(size=4))]),
        Reading(),
        "warning",
        "8",
    ),
    "bad_line": (
        lambda tmp: _with_bad_line(lines(tmp / "a.jsonl", batch(prompts=10))),
        Reading(),
        "warning",
        "1",
    ),
}


NAMED = {"component_missing_in_a_step": "reward_column_missing"}
"""Further cases of a problem that is there already."""


def _with_bad_line(path: Path) -> Path:
    path.write_text("{torn\n" + path.read_text("utf-8"), "utf-8")
    return path


@pytest.mark.parametrize("code", PROBLEMS)
def test_every_problem_is_told(code: str, tmp_path: Path) -> None:
    write, reading, severity, words = PROBLEMS[code]
    found = survey(write(tmp_path), reading)
    code = NAMED.get(code, code)
    assert codes(found).get(code) == severity, codes(found)
    problem = told(found, code)
    assert words in problem.message
    assert "\n" not in problem.message
    assert found.usable == ("error" not in codes(found).values())
    json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(name))


def test_a_clean_dump_has_no_problems(tmp_path: Path) -> None:
    found = survey(_files(*STEPS)(tmp_path))
    assert found.problems == ()
    assert found.absences == ()
    assert found.group_sizes is not None
    assert (found.group_sizes.sizes, found.group_sizes.uneven) == ({"2": 10}, 0)


def test_the_facts_stand_beside_the_errors(tmp_path: Path) -> None:
    """A survey goes on where an analysis stops, by the most lenient choice."""
    found = survey(_resumed(tmp_path))
    assert (found.rows, found.steps, found.groups) == (8, (1,), 2)
    broken = survey(_damaged(tmp_path / "d"))
    assert [file.rows for file in broken.files] == [4, 1]
    bare = survey(lines(tmp_path / "q.jsonl", _swapped(batch(), reward="quality")))
    assert bare.groups == 2 and bare.reward is not None and bare.reward.numbers == 0
    assert "quality" in bare.reward.candidates


def test_the_unread_columns_of_a_table_are_candidates_too(tmp_path: Path) -> None:
    pl.DataFrame(_swapped(batch(), reward="quality")).write_parquet(tmp_path / "a.parquet")
    found = survey(tmp_path / "a.parquet")
    with pytest.raises(Exception, match="no reward column") as refused:
        read_dump([tmp_path / "a.parquet"])
    assert told(found, "no_reward").message == str(refused.value)


def test_a_step_that_was_written_twice_names_both_files(tmp_path: Path) -> None:
    path = _resumed(tmp_path)
    found = survey(path, Reading(on_duplicate_step="last"))
    problem = told(found, "step_written_twice")
    assert found.usable and found.rows == 4
    assert problem.places == tuple(str(path / name / "step_1.jsonl") for name in "ab")
    assert "(4 and 4 rows)" in problem.message and "the last was taken" in problem.message


def test_a_large_row_group_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame(batch(prompts=10)).write_parquet(path, row_group_size=15)
    groups = survey(path).files[0].row_groups
    assert groups is not None and (groups.number, groups.most_rows) == (2, 15)
    monkeypatch.setattr(survey_files, "LARGE_ROW_GROUP", groups.most_bytes - 1)
    assert told(survey(path), "large_row_group").severity == "warning"


def test_turns_count_as_one_trajectory(tmp_path: Path) -> None:
    """Two prompts with two trajectories of 3, 1, 2 and 2 turns; the reward is on the last."""
    rows = []
    for place, turns in enumerate((3, 1, 2, 2)):
        prompt = f"p{place // 2}"
        for turn in range(turns):
            rows.append(
                {
                    "prompt": prompt + " more" * turn,
                    "response": f"{place} {turn}",
                    "reward": float(place % 2 == 0 and turn == turns - 1),
                    "group_id": prompt,
                    "trajectory_id": str(place),
                    "turn": turn,
                    "step": 1,
                }
            )
    found = survey(lines(tmp_path / "a.jsonl", rows))
    assert (found.rows, found.trajectories, found.turns, found.groups) == (8, 4, 3, 2)
    assert found.prompts == 2
    assert found.group_sizes is not None and found.group_sizes.sizes == {"2": 2}
    assert found.reward is not None and found.reward.mean == 0.5
    assert found.reward_variance is not None and found.reward_variance.flat == 0


@pytest.mark.parametrize("write", REFUSED)
def test_what_is_no_dump_is_one_error(write: Callable[[Path], Path], tmp_path: Path) -> None:
    found = survey(write(tmp_path))
    assert not found.usable and found.dialect is None
    assert [problem.severity for problem in found.problems] == ["error"]
    assert not (tmp_path / "marker").exists()
    assert re.search(REFUSED[write], found.problems[0].message)


# Checkpoints


def _checkpoint(tmp: Path, **config: Any) -> Path:
    """The sample's checkpoint with another configuration."""
    folder = tmp / "step_00007"
    folder.mkdir()
    for file in CHECKPOINT.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    values = json.loads((CHECKPOINT / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(values | config), "utf-8")
    return folder


def test_a_checkpoint_that_fits(tmp_path: Path) -> None:
    found = survey(sample_dump("template_collapse", 0), ckpt="step_00000")
    assert found.problems == ()
    checkpoint = found.checkpoint
    assert checkpoint is not None
    config = json.loads((CHECKPOINT / "config.json").read_text("utf-8"))
    assert checkpoint.path == str(CHECKPOINT)
    assert (checkpoint.step, checkpoint.context) == (0, config["max_position_embeddings"])
    assert checkpoint.vocabulary == config["vocab_size"]
    assert checkpoint.weight_bytes == (CHECKPOINT / "model.safetensors").stat().st_size


def test_a_checkpoint_that_does_not_fit(tmp_path: Path) -> None:
    """Of another step, with fewer ids than occur and a context shorter than the rows."""
    folder = _checkpoint(tmp_path, vocab_size=40, max_position_embeddings=30)
    dump = sample_dump("template_collapse", 0)
    found = survey(dump, ckpt=str(folder))
    lengths = pl.read_parquet(dump).select(
        pl.col("prompt_ids").list.len() + pl.col("response_ids").list.len()
    )
    too_long = int((lengths.to_series() > 30).sum())
    assert codes(found)["token_beyond_vocabulary"] == "error"
    assert f"{too_long} of 256 sampled rows" in told(found, "too_long").message
    assert "step 7" in told(found, "step_mismatch").message


def test_a_tokenizer_beyond_the_vocabulary(tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path, vocab_size=60)
    tokens = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    path = lines(tmp_path / "a.jsonl", [{**row, "response": "", "prompt": ""} for row in batch(7)])
    assert max(tokens.values()) >= 60
    found = survey(path, ckpt=str(folder))
    assert codes(found)["vocabulary_too_small"] == "warning"


@pytest.mark.parametrize("name", ["nowhere", "hugging"])
def test_an_unusable_checkpoint_hides_no_facts(name: str, tmp_path: Path) -> None:
    hugging = tmp_path / "hugging" / "actor" / "huggingface"
    hugging.mkdir(parents=True)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (hugging / file).write_bytes((CHECKPOINT / file).read_bytes())
    path = lines(tmp_path / "a.jsonl", batch())
    found = survey(path, ckpt=name)
    problem = told(found, "checkpoint_unusable")
    assert problem.severity == "error" and not found.usable
    assert found.rows == 4 and found.reward is not None
    if name == "hugging":
        assert "verl.model_merger merge --backend fsdp" in problem.message
        assert found.sample is not None and found.sample.response_tokens is not None


def test_a_hub_checkpoint_is_left_alone(tmp_path: Path) -> None:
    found = survey(lines(tmp_path / "a.jsonl", batch()), ckpt="org/no-such-model")
    assert codes(found) == {"checkpoint_on_hub": "note"}
    assert found.checkpoint is not None and found.checkpoint.path == "org/no-such-model"


def test_one_prompt_cannot_be_scored(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", batch(0, prompts=1, size=4))
    assert codes(survey(path, ckpt=str(CHECKPOINT)))["one_prompt"] == "error"


def test_a_tokenizer_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    path = lines(tmp_path / "a.jsonl", batch())
    for source in (str(tmp_path), "org/no-such-tokenizer", str(tmp_path / "a.jsonl" / "x")):
        found = survey(path, tokenizer=source)
        assert codes(found) == {"tokenizer_not_opened": "warning"}
        assert source in told(found, "tokenizer_not_opened").message


# The terminal


def _printed(found: Survey, width: int = 80, encoding: str = "utf-8", **options: Any) -> str:
    with (console := Console(width=width, **options)).capture() as captured:
        print_survey(found, console=console)
    return captured.get()


@pytest.mark.parametrize("run", ["template_collapse", "healthy", "compressed", "format_collapse"])
def test_sample_runs_fit_on_a_screen(run: str) -> None:
    found = survey(SAMPLE_RUNS / run / "rollouts", ckpt="step_00000")
    assert found.usable and len(found.steps) > 10
    shown = _printed(found).splitlines()
    assert len(shown) <= MOST_LINES
    assert max(map(len, shown)) <= 80


def test_a_survey_reads_like_this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = batch(1) + batch(2, size=3)
    rows = [{**row, "reward_components": {"acc": 1.0}} for row in rows]
    rows[1]["reward"] = None
    lines(Path("a.jsonl"), rows)
    assert _printed(survey(Path("a.jsonl"))) == (
        "a.jsonl: 10 rows of 2 steps in 1 file, dialect canonical (likely: columns\n"
        "prompt, response)\n"
        "usable: 1 warning, 1 note\n"
        "\n"
        "  warning           1 of 10 rows have no reward; they are left out of all\n"
        "                    reward statistics, and never taken for 0 (a.jsonl row 2)\n"
        "  note              groups differ in size: 2 to 3, 2 of 4 other than the usual\n"
        "                    3\n"
        "\n"
        "  files             1 jsonl\n"
        "  steps             1 to 2: 4 to 6 rows, 2 prompts, 2 groups\n"
        "  groups            4 of 2 to 3 (median 2.5), by ids of the dump\n"
        "  texts             2 prompts; 100 % of the responses differ\n"
        "  reward            reward: mean 0.333, from 0 (66.7 %) to 1 (33.3 %); 1\n"
        "                    missing\n"
        "  components        acc\n"
        "  reward variance   0 % of 3 groups flat; mean variance of Q1 to Q3: 0.333,\n"
        "                    0.333, 0.500\n"
        "  truncation        not told: no finish reasons, and no lengths in tokens\n"
        "  reasoning         <think> ... </think>: valid 100 % (10 sampled rows)\n"
        "  tokens            not counted: no tokenizer given: see --tokenizer and --ckpt\n"
    )


HOSTILE = "::error::x [bold red]m[/] \x1b[31mred\x1b]0;t\x07 \u202eevil ##[error]y </script>"


def test_hostile_names_and_values_are_inert(tmp_path: Path) -> None:
    rows = batch(1, **{HOSTILE: 1.0}) + batch(2)
    rows = [{**row, "split": HOSTILE, "group_id": f"{row['group_id']} {HOSTILE}"} for row in rows]
    rows[0]["reward"] = HOSTILE
    rows[2]["prompt"] = rows[0]["prompt"] + HOSTILE
    name = "::error::" + HOSTILE.replace("/", "")
    found = survey(lines(tmp_path / name / "a.jsonl", rows), ckpt=HOSTILE)
    shown = _printed(found, force_terminal=True, color_system="standard")
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert not [char for char in plain if ord(char) < 32 and char != "\n"]
    assert "\u202e" not in plain and "##[" not in plain
    assert not [line for line in plain.splitlines() if line.lstrip().startswith("::")]
    assert "[bold red]m[/]" in plain.replace("\n", " ")
    for encoding in ("ascii", "cp1252"):
        for line in survey_lines(found, encoding=encoding):
            line.plain.encode(encoding)
    for width in (40, 60):
        assert max(line.cell_len for line in survey_lines(found, width=width)) <= width


def test_many_problems_are_counted_and_errors_never_dropped(tmp_path: Path) -> None:
    found = survey(lines(tmp_path / "a.jsonl", batch()))
    many = [
        Problem(code=f"c{i}", severity="error" if i < 3 else "note", message=f"observation {i}")
        for i in range(60)
    ]
    shown = _printed(found.model_copy(update={"problems": tuple(many)}))
    assert len(shown.splitlines()) <= MOST_LINES
    assert all(f"observation {i}\n" in shown for i in range(3))
    hidden = re.search(r"more +(\d+) notes", shown)
    assert hidden is not None
    assert len(re.findall(r"observation", shown)) + int(hidden[1]) == 60


# The command


def _validate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ragen_diag", "validate", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def test_usable_exits_with_0_and_prints_one_document(tmp_path: Path) -> None:
    run = _validate(sample_dump("healthy", 0), "--ckpt", "step_00000", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    document = json.loads(run.stdout)
    assert document.keys() >= {"dialect", "rows", "groups", "group_source", "steps", "problems"}
    assert (document["rows"], document["groups"], document["steps"]) == (256, 32, [0])
    assert document["group_source"] == {"explicit": 256}


@pytest.mark.parametrize("name", ["missing.jsonl", "bad.jsonl"])
def test_not_usable_exits_with_2_and_prints_one_document(name: str, tmp_path: Path) -> None:
    lines(tmp_path / "bad.jsonl", _swapped(batch(), reward="quality"))
    run = _validate(tmp_path / name, "--json")
    assert (run.returncode, run.stderr) == (2, "")
    document = json.loads(run.stdout)
    assert document["usable"] is False
    assert document["problems"][0]["severity"] == "error"
    text = _validate(tmp_path / name)
    assert text.returncode == 2 and "not usable" in text.stdout


def test_wrong_words_are_an_error_on_stderr(tmp_path: Path) -> None:
    run = _validate(lines(tmp_path / "a.jsonl", batch()), "--dialect", "nonsense")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: --dialect nonsense")


def test_no_torch_is_imported(tmp_path: Path) -> None:
    dump = sample_dump("healthy", 0)
    code = (
        "import sys\n"
        "from ragen_diag.cli import main\n"
        f"sys.argv = ['ragen-diag', 'validate', {str(dump)!r}, '--ckpt', 'step_00000', '--json']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*{'torch', 'transformers', 'matplotlib'} & set(sys.modules), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.strip() == ""
