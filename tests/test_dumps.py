"""Dump files of three dialects end in one table; what they hold wrong is refused or counted."""

import datetime
import hashlib
import json
import os
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_diag.dumps import read_dump
from ragen_diag.errors import DumpError
from ragen_diag.rollouts import SCHEMA, Rollouts
from ragen_diag.settings import Reading

ROW = {"prompt": "p", "response": "r", "reward": 1.0}


def parquet(path: Path, columns: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path


def jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def column(rollouts: Rollouts, name: str) -> list[Any]:
    return rollouts.table[name].to_list()


# Canonical


def test_minimal_canonical_table_gets_every_column(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{**ROW, "note": {"k": [1]}}, {**ROW, "response": "s"}])
    rollouts = read_dump([path])
    assert rollouts.dialect == "canonical"
    assert dict(rollouts.table.schema) == {
        k: pl.Series([], dtype=v).dtype for k, v in SCHEMA.items()
    }
    assert rollouts.notes == {}
    assert rollouts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert column(rollouts, "finish_reason") == ["unknown", "unknown"]
    assert column(rollouts, "_row") == [1, 2]
    assert [e and json.loads(e) for e in column(rollouts, "extra")] == [{"note": {"k": [1]}}, None]
    first, second = column(rollouts, "sample_id")
    assert first.removesuffix("#0") == second.removesuffix("#1") == column(rollouts, "group_id")[0]


def test_converted_table_reads_back_to_itself(tmp_path: Path) -> None:
    source = jsonl(
        tmp_path / "7.jsonl",
        [
            {
                "input": "p",
                "output": "a",
                "gts": ["x"],
                "score": float("nan"),
                "acc": 1,
                "pred": "q",
            },
            {
                "input": "p",
                "output": None,
                "gts": ["x"],
                "score": "n/a",
                "acc": 0,
                "pred": "\ud800",
            },
            {"input": "p", "output": "b", "gts": ["y"], "score": 0.5},
        ],
    )
    once = read_dump([source])
    once.table.write_parquet(tmp_path / "canonical.parquet")
    again = read_dump([tmp_path / "canonical.parquet"])
    assert again.table.equals(once.table, null_equal=True)
    assert once.notes == again.notes
    assert once.notes == {"bad_reward": 1, "lone_surrogate": 1, "nan_reward": 1, "null_response": 1}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MAYBE_FLOAT = st.none() | st.floats(-1e150, 1e150)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "step": st.none() | st.integers(0, 3),
                "prompt": TEXT,
                "response": TEXT,
                "reward": MAYBE_FLOAT,
                "ground_truth": st.none() | TEXT,
                "reward_components": st.none()
                | st.dictionaries(TEXT, MAYBE_FLOAT, max_size=2).map(
                    lambda d: [{"key": k, "value": v} for k, v in d.items()]
                ),
                "response_ids": st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=3),
                "messages": st.none()
                | st.lists(st.fixed_dictionaries({"role": TEXT, "content": TEXT}), max_size=2),
                "finish_reason": st.sampled_from(["stop", "length", "abort", "error", "unknown"]),
                "extra": st.none() | st.dictionaries(TEXT, TEXT, min_size=1).map(json.dumps),
            }
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_canonical_table_survives_parquet(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("round")
    given_columns = {name: SCHEMA[name] for name in rows[0]}
    table = pl.DataFrame(rows, schema=given_columns, orient="row")
    table.write_parquet(folder / "in.parquet")
    once = read_dump([folder / "in.parquet"]).table
    assert once.select(given_columns.keys()).equals(table, null_equal=True)
    once.write_parquet(folder / "out.parquet")
    assert read_dump([folder / "out.parquet"]).table.equals(once, null_equal=True)


def test_parquet_map_becomes_components(tmp_path: Path) -> None:
    maps = pa.array([[("acc", 1.0), ("fmt", 0.5)], None], type=pa.map_(pa.string(), pa.float64()))
    path = parquet(
        tmp_path / "a.parquet",
        {"prompt": ["p", "q"], "response": ["r", "s"], "reward_components": maps},
    )
    with pytest.raises(DumpError, match=r"no reward column.*--reward acc"):
        read_dump([path])
    rollouts = read_dump([path], reading=Reading(rewards=(("fmt", 1.0),)))
    assert column(rollouts, "reward") == [0.5, None]
    assert column(rollouts, "reward_components")[0] == [
        {"key": "acc", "value": 1.0},
        {"key": "fmt", "value": 0.5},
    ]


def test_reward_is_never_guessed(tmp_path: Path) -> None:
    row = {"prompt": "p", "response": "r", "score": 1, "rewards": 2, "name": "x"}
    path = jsonl(tmp_path / "a.jsonl", [row])
    with pytest.raises(DumpError, match=r"found prompt, .*, name; try --reward score"):
        read_dump([path])
    with pytest.raises(DumpError, match="no reward column 'acc'; candidates: score, rewards"):
        read_dump([path], reading=Reading(rewards=(("acc", 1.0),)))
    with pytest.raises(DumpError, match="no value of the reward 'name' is a number"):
        read_dump([path], reading=Reading(rewards=(("name", 1.0),)))
    assert column(read_dump([path], reading=Reading(rewards=(("score", 1.0),))), "reward") == [1.0]


def test_canonical_reward_wins_over_its_alias(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{**ROW, "score": 9}])
    rollouts = read_dump([path])
    assert column(rollouts, "reward") == [1.0]
    assert rollouts.notes == {"two_reward_columns": 1}
    other = read_dump([path], reading=Reading(rewards=(("score", 1.0),)))
    assert column(other, "reward") == [9.0]
    assert json.loads(column(other, "extra")[0]) == {"score": 9, "reward": 1.0}


def test_rewards_of_every_spelling(tmp_path: Path) -> None:
    """Integers first, text later (150 lines in), tokens that JSON lacks: null, never 0."""
    values: list[Any] = [1] * 150 + [0.5, "n/a", "1e-1", True, False, None]
    values += [float("nan"), float("inf"), [1, 2], {"score": 1}]
    path = jsonl(tmp_path / "a.jsonl", [{**ROW, "reward": value} for value in values])
    rollouts = read_dump([path])
    assert column(rollouts, "reward")[149:] == [
        1,
        0.5,
        None,
        0.1,
        1,
        0,
        None,
        None,
        None,
        3,
        1,
    ]
    assert rollouts.notes == {
        "bad_reward": 2,
        "nan_reward": 1,
        "null_reward": 1,
        "reward_from_object": 1,
        "reward_list_summed": 1,
    }
    bad = rollouts.table.filter(pl.col("_flags").list.contains("bad_reward"))
    assert bad["_row"].to_list() == [152, 158]


def test_nan_in_numbers_is_told_from_null(tmp_path: Path) -> None:
    rewards = [1.0, float("nan"), None, -float("inf")]
    columns = {"prompt": ["p"] * 4, "response": list("abcd"), "reward": rewards}
    for path in (
        parquet(tmp_path / "a.parquet", columns),
        jsonl(tmp_path / "a.jsonl", [{**ROW, "reward": value} for value in rewards]),
    ):
        rollouts = read_dump([path])
        assert column(rollouts, "reward") == [1.0, None, None, None]
        assert rollouts.notes == {"nan_reward": 1, "null_reward": 1, "bad_reward": 1}


def test_messages_in_prompt_and_parts_in_content(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": "2+"}, {"text": "2?"}], "x": 1}]
    rollouts = read_dump([jsonl(tmp_path / "a.jsonl", [{**ROW, "prompt": chat}] * 2)])
    assert column(rollouts, "messages")[1] == [{"role": "user", "content": "2+2?"}]
    assert column(rollouts, "prompt") == [None, None]
    assert rollouts.table["group_id"].n_unique() == 1


def test_finish_reasons_in_one_vocabulary(tmp_path: Path) -> None:
    words = ["stop", "EOS", "max_tokens", "truncated", "aborted", "failed", None, "whatever"]
    rollouts = read_dump(
        [jsonl(tmp_path / "a.jsonl", [{**ROW, "finish_reason": w} for w in words])]
    )
    expected = ["stop", "stop", "length", "length", "abort", "error", "unknown", "unknown"]
    assert column(rollouts, "finish_reason") == expected
    assert rollouts.notes == {"unknown_finish_reason": 1}


@pytest.mark.parametrize(
    "bad", [[1, 2**40], [1, 2**70], [1.5], [-100, 1], [1, -1], ["a"], [None], [[1]], "1 2", 7]
)
def test_one_bad_list_of_token_ids_costs_its_row_all_ids(tmp_path: Path, bad: Any) -> None:
    rows = [{**ROW, "prompt_ids": [4], "response_ids": ids} for ids in ([1, 2.0], bad, None, [])]
    rollouts = read_dump([jsonl(tmp_path / "a.jsonl", rows)])
    assert column(rollouts, "response_ids") == [[1, 2], None, None, []]
    assert column(rollouts, "prompt_ids") == [[4], None, [4], [4]]
    assert rollouts.notes == {"bad_token_ids": 1}


@pytest.mark.parametrize(
    "bad", [[-1.0], [-1.0, float("nan")], [-1.0, float("inf")], [-1.0, None], [-1e300, 0], "x", 7]
)
def test_bad_rollout_logprobs_are_dropped_row_by_row(tmp_path: Path, bad: Any) -> None:
    rows = [
        {**ROW, "response_ids": [1, 2], "rollout_logprobs": values}
        for values in ([-1.0, -2], bad, None)
    ]
    rows.append({**ROW, "rollout_logprobs": [-1, -2, -3]})
    rollouts = read_dump([jsonl(tmp_path / "a.jsonl", rows)])
    assert column(rollouts, "rollout_logprobs") == [[-1, -2], None, None, [-1, -2, -3]]
    assert rollouts.notes == {"bad_rollout_logprobs": 1}


def test_a_token_that_the_sampler_cut_off_has_the_log_prob_that_it_has(tmp_path: Path) -> None:
    rows = [{**ROW, "response_ids": [1, 2], "rollout_logprobs": [-1.0, -float("inf")]}]
    rollouts = read_dump([jsonl(tmp_path / "a.jsonl", rows)])
    assert column(rollouts, "rollout_logprobs") == [[-1, -float("inf")]]
    assert rollouts.notes == {}


def test_only_a_response_without_text_and_ids_is_null(tmp_path: Path) -> None:
    rows: list[dict[str, Any]]
    rows = [{"response": None}, {"response": None, "response_ids": [1]}, {"response": ""}]
    rollouts = read_dump([jsonl(tmp_path / "a.jsonl", [{**ROW, **row} for row in rows])])
    assert column(rollouts, "response") == [None, None, ""]
    assert column(rollouts, "_flags") == [["null_response"], [], []]


@pytest.mark.parametrize("bad", ["no JSON", "[1]", [1], [{"a": 1}], 3])
def test_bad_reward_components_cost_their_row(tmp_path: Path, bad: Any) -> None:
    rows = [{**ROW, "reward_components": value} for value in ({"a": 1, "b": 10**400}, bad, None)]
    rollouts = read_dump([jsonl(tmp_path / "a.jsonl", rows)])
    parts = [{"key": "a", "value": 1.0}, {"key": "b", "value": None}]
    assert column(rollouts, "reward_components") == [parts, None, None]
    assert rollouts.notes == {"bad_components": 1}


def test_values_beyond_their_type_are_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]]
    rows = [{"turn": 2**31}, {"reward": 1e308}, {"reward": 10**400}, {"_flags": "x"}, {}]
    rollouts = read_dump([jsonl(tmp_path / f"step_{'9' * 23}.jsonl", [{**ROW, **r} for r in rows])])
    assert column(rollouts, "turn") == [None] * 5
    assert column(rollouts, "reward") == [1, None, None, 1, 1]
    assert rollouts.steps == [None]
    assert rollouts.notes == {"bad_turn": 1, "bad_reward": 2, "bad_flags": 1}


@pytest.mark.parametrize(
    ("reward", "instead"),
    [
        (["0.0", "1.0"], r"list values such as \['0.0', '1.0'\]"),
        (b"1", "binary values such as b'1'"),
        (datetime.date(2026, 1, 2), r"date values such as datetime.date\(2026, 1, 2\)"),
        ("good", "string values such as 'good'"),
    ],
)
def test_rewards_of_another_type_are_named(tmp_path: Path, reward: Any, instead: str) -> None:
    path = parquet(tmp_path / "a.parquet", {"prompt": ["p"], "response": ["r"], "reward": [reward]})
    with pytest.raises(DumpError, match=f"{instead}; write one number"):
        read_dump([path])


def test_pandas_index_is_ignored_and_float_ids_are_whole(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "a.parquet",
        {
            "prompt": ["p", "p", "q"],
            "response": ["a", "b", "c"],
            "reward": [1, 0, 1],
            "group_id": pa.array([1.0, 1.0, 9007199254740992.0]),
            "__index_level_0__": ["x", "y", "z"],
        },
    )
    rollouts = read_dump([path])
    assert column(rollouts, "group_id")[:2] == ["1", "1"]
    assert column(rollouts, "extra") == [None] * 3
    assert rollouts.notes == {"imprecise_id": 1}


# TRL


def trl(path: Path, **changes: Any) -> Path:
    nan = float("nan")
    columns = {
        "step": [3] * 6,
        "prompt": ["p", "p", "q", "q", "p", "p"],
        "completion": list("abcdef"),
        "correct": [1.0, 0.0, nan, nan, 1.0, 1.0],
        "format": [0.5, 0.5, 0.5, nan, 0.0, 0.0],
        "solution": ["x"] * 6,
        "advantage": [0.7, -0.7, 0.0, 0.0, nan, 0.0],
    }
    return parquet(path, {**columns, **changes})


def test_trl_sums_components_and_keeps_runs_of_prompts_apart(tmp_path: Path) -> None:
    rollouts = read_dump([trl(tmp_path / "completions_00003.parquet")])
    assert rollouts.dialect == "trl"
    assert column(rollouts, "reward") == [1.5, 0.5, 0.5, None, 1.0, 1.0]
    assert rollouts.notes == {
        "unweighted_reward_sum": 6,
        "nan_component": 1,
        "nan_reward": 1,
        "nan_advantage": 1,
    }
    assert column(rollouts, "group_id") == ["3:0", "3:0", "3:1", "3:1", "3:2", "3:2"]
    assert set(column(rollouts, "group_source")) == {"contiguous"}
    assert column(rollouts, "reward_components")[2] == [
        {"key": "correct", "value": None},
        {"key": "format", "value": 0.5},
    ]
    assert json.loads(column(rollouts, "extra")[0]) == {"solution": "x"}
    one = read_dump(
        [trl(tmp_path / "completions_00003.parquet")], reading=Reading(rewards=(("correct", 1.0),))
    )
    assert column(one, "reward") == [1.0, 0.0, None, None, 1.0, 1.0]
    with pytest.raises(DumpError, match="no reward column 'x'; candidates: correct, format"):
        read_dump(
            [trl(tmp_path / "completions_00003.parquet")], reading=Reading(rewards=(("x", 1.0),))
        )


def test_trl_sums_floats_and_what_is_named_a_reward(tmp_path: Path) -> None:
    more = {"fmt_reward": [1] * 6, "ok_score": [True] * 6, "length": [900] * 6, "cut": [True] * 6}
    path = trl(tmp_path / "c.parquet", **more)
    rollouts = read_dump([path])
    assert column(rollouts, "reward") == [3.5, 2.5, 2.5, 2.0, 3.0, 3.0]
    assert json.loads(column(rollouts, "extra")[0]) == {"solution": "x", "length": 900, "cut": True}
    assert (
        column(read_dump([path], reading=Reading(rewards=(("length", 1.0),))), "reward")
        == [900] * 6
    )


def test_trl_groups_do_not_run_over_files(tmp_path: Path) -> None:
    same = {"prompt": ["p"] * 2, "completion": ["a", "b"], "f": [1.0, 0.0]}
    for name in ("completions_00010.parquet", "completions_00009.parquet"):
        parquet(tmp_path / "steps" / name, same)
        part = tmp_path / "parts" / name.replace("completions_", "part")
        parquet(part, {**same, "completion": [name, "b"]})
    rollouts = read_dump([tmp_path / "steps"])
    assert column(rollouts, "step") == [9, 9, 10, 10]
    assert column(rollouts, "group_id") == ["9:0", "9:0", "10:0", "10:0"]
    assert column(read_dump([tmp_path / "parts"]), "group_id") == ["0", "0", "1", "1"]


def test_trl_conversations(tmp_path: Path) -> None:
    def chat(role: str, *contents: str) -> list[dict[str, str]]:
        return [{"role": role, "content": content} for content in contents]

    path = trl(
        tmp_path / "c.parquet",
        prompt=[chat("user", "p")] * 6,
        completion=[chat("assistant", "a")] * 5 + [chat("assistant", "first", "second")],
    )
    rollouts = read_dump([path])
    assert column(rollouts, "response") == ["a"] * 5 + ["first", "second"]
    assert column(rollouts, "turn") == [0] * 6 + [1]
    assert column(rollouts, "messages")[0] == [{"role": "user", "content": "p"}]
    assert column(rollouts, "messages")[6] == [
        {"role": "user", "content": "p"},
        {"role": "assistant", "content": "first"},
    ]
    assert rollouts.table["group_id"].n_unique() == 1


# verl


def verl(gts: Any, score: Any, **more: Any) -> dict[str, Any]:
    return {"input": "p", "output": "o", "gts": gts, "score": score, "step": 5, **more}


def test_verl_groups_by_key_whatever_the_order(tmp_path: Path) -> None:
    rows = [verl("1", 0.0), verl("2", 1.0), verl("1", 1.0), verl("2", 0.0), verl(None, 0.0)]
    rollouts = read_dump([jsonl(tmp_path / "5.jsonl", rows)])
    assert rollouts.dialect == "verl"
    ids = column(rollouts, "group_id")
    assert ids[0] == ids[2] != ids[1] == ids[3] != ids[4]
    assert all(i.startswith("5:") for i in ids)
    assert column(rollouts, "group_source") == ["derived_key"] * 4 + ["prompt_text"]
    back = read_dump([jsonl(tmp_path / "b" / "5.jsonl", rows[::-1])])
    assert column(back, "group_id") == ids[::-1]


def test_verl_extras_and_ground_truths_of_every_type(tmp_path: Path) -> None:
    rows = [
        verl("42", 1.0, acc=True, pred="42", info={"a": 1}, format=1),
        verl(["a", 1], 0.0, acc=False, pred="41", info=None),
        verl({"k": None}, 0.0, acc=None, pred=None, info={}),
    ]
    rollouts = read_dump([jsonl(tmp_path / "5.jsonl", rows)])
    assert column(rollouts, "ground_truth") == ["42", '["a", 1]', '{"k": null}']
    assert column(rollouts, "reward_components")[:2] == [
        [{"key": "acc", "value": 1.0}, {"key": "format", "value": 1.0}],
        [{"key": "acc", "value": 0.0}, {"key": "format", "value": None}],
    ]
    extra = [e and json.loads(e) for e in column(rollouts, "extra")]
    assert extra == [{"pred": "42", "info": {"a": 1}}, {"pred": "41"}, {"info": {}}]
    assert column(
        read_dump([jsonl(tmp_path / "5.jsonl", rows)], reading=Reading(rewards=(("acc", 1.0),))),
        "reward",
    ) == [
        1,
        0,
        None,
    ]


def test_verl_v1_uid_without_its_two_numbers_is_the_group(tmp_path: Path) -> None:
    uids = ["a-b_0_0", "a-b_0_1", "a-b_1_0", "c_d_10_0"]
    rows = [verl(None, 1.0, uid=uid) for uid in uids]
    rollouts = read_dump([jsonl(tmp_path / "5.jsonl", rows)])
    assert column(rollouts, "group_id") == ["a-b", "a-b", "a-b", "c_d"]
    assert column(rollouts, "sample_id") == uids
    assert column(rollouts, "trajectory_id") == ["a-b_0", "a-b_0", "a-b_1", "c_d_10"]
    assert column(rollouts, "turn") == [0, 1, 0, 0]
    assert set(column(rollouts, "group_source")) == {"explicit"}


def test_columns_that_differ_between_steps(tmp_path: Path) -> None:
    """An extra column, a renamed one, another type, only nulls: read file by file."""
    base = {"input": "p", "output": "o"}
    jsonl(tmp_path / "1.jsonl", [{**base, "score": 1}])
    jsonl(tmp_path / "2.jsonl", [{**base, "score": 0.5, "acc": 1}])
    jsonl(tmp_path / "3.jsonl", [{**base, "reward": 2.0}])
    jsonl(tmp_path / "10.jsonl", [{**base, "score": None}])
    jsonl(tmp_path / "11.jsonl", [base])
    rollouts = read_dump([tmp_path])
    assert column(rollouts, "step") == [1, 2, 3, 10, 11]
    assert column(rollouts, "reward") == [1.0, 0.5, 2.0, None, None]
    assert rollouts.notes == {"null_reward": 2, "no_reward_column": 1}


def test_public_verl_sample() -> None:
    folder = os.environ.get("RAGEN_DIAG_PUBLIC_DUMPS")
    path = Path(folder or "") / "verl__1.jsonl"
    if not folder or not path.exists():
        pytest.skip("RAGEN_DIAG_PUBLIC_DUMPS does not name a folder with verl__1.jsonl")
    rollouts = read_dump([path])
    assert (rollouts.dialect, rollouts.steps, rollouts.notes) == ("verl", [1], {})
    assert rollouts.table.height == rollouts.table["group_id"].n_unique() == 128
    assert sorted(column(rollouts, "reward")) == [0.0] * 126 + [1.0] * 2
    assert all(p.endswith("\nassistant\n") for p in column(rollouts, "prompt"))


# Groups and ids


def grouped(tmp_path: Path, rows: Sequence[Mapping[str, Any]]) -> Rollouts:
    return read_dump([jsonl(tmp_path / "a.jsonl", [{**ROW, **row} for row in rows])])


def test_ids_that_count_rows_give_way_to_the_prompts(tmp_path: Path) -> None:
    rollouts = grouped(tmp_path, [{"prompt": f"p{i % 4}", "group_id": i} for i in range(16)])
    assert rollouts.notes == {"ids_unique_per_row": 16}
    assert set(column(rollouts, "group_source")) == {"prompt_text"}
    assert rollouts.table.group_by("group_id").len()["len"].to_list() == [4] * 4


def test_one_prompt_under_two_ids_stays_two_groups(tmp_path: Path) -> None:
    plain = grouped(tmp_path, [{"prompt": f"p{i // 2}", "group_id": i // 2} for i in range(8)])
    twice = grouped(tmp_path, [{"prompt": "p", "group_id": i // 2} for i in range(4)])
    single = grouped(tmp_path, [{"prompt": f"p{max(i, 1)}", "group_id": i} for i in range(4)])
    for rollouts, groups in ((plain, 4), (twice, 2), (single, 4)):
        assert set(column(rollouts, "group_source")) == {"explicit"}
        assert rollouts.table["group_id"].n_unique() == groups
        assert rollouts.notes == {}


def test_one_id_over_several_prompts_is_refused_unless_they_are_turns(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"group_id 'g\\n1' .*in row 3 and in row 4 of .*a\.jsonl;"):
        grouped(tmp_path, [{"prompt": f"p{i // 3}", "group_id": f"g\n{i // 2}"} for i in range(4)])
    with pytest.raises(DumpError, match=r"in row 1 and in row 2"):
        grouped(tmp_path, [{"prompt": f"p{i}", "group_id": "g", "step": 1} for i in (0, 1, 1)])
    apart = [{"prompt": f"p{i // 2}", "group_id": "g", "step": i // 2} for i in range(4)]
    assert grouped(tmp_path, apart).notes == {}
    turns = [{"prompt": f"p{i}", "group_id": 0, "trajectory_id": "t", "turn": i} for i in range(3)]
    assert grouped(tmp_path, turns).notes == {}
    other = {"prompt": "q", "group_id": 0, "trajectory_id": "u", "turn": 2}
    assert grouped(tmp_path, [*turns, other]).notes == {"group_id_with_several_prompts": 1}


def test_first_turn_of_each_trajectory(tmp_path: Path) -> None:
    places = [("t", 0), ("t", 1), ("u", 3), ("u", 2), (None, 0), (None, 1), ("v", None)]
    rows = [{"trajectory_id": t, "turn": turn, "group_id": "g"} for t, turn in places]
    first = grouped(tmp_path, rows).in_scope()
    assert column(first, "_row") == [1, 4, 5, 7]
    assert first.notes == {"later_turn": 3}


def test_sample_ids_are_unique_within_a_step(tmp_path: Path) -> None:
    ids = ["a", "a", "a#1", None, "a"]
    rollouts = grouped(tmp_path, [{"sample_id": i, "group_id": "g"} for i in ids])
    sample_ids = column(rollouts, "sample_id")
    assert len(set(sample_ids)) == 5
    assert sample_ids[0] == "a"
    assert rollouts.notes == {"duplicate_sample_id": 2}
    steps = grouped(tmp_path, [{"sample_id": "a", "step": i} for i in range(2)])
    assert column(steps, "sample_id") == ["a", "a"]


def test_rows_without_prompt_are_no_group(tmp_path: Path) -> None:
    rollouts = grouped(tmp_path, [{"prompt": None}, {"prompt": None}, {}, {}])
    ids = column(rollouts, "group_id")
    assert len({ids[0], ids[1], ids[2]}) == 3
    assert ids[2] == ids[3]


# Steps


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("12.jsonl", 12),
        ("step_00400.jsonl", 400),
        ("completions_00400.jsonl", 400),
        ("global_step_400.jsonl", 400),
        ("global_step_5/rollout.jsonl", 5),
        ("step=3/part-0.jsonl", 3),
        ("run-step400-v2.jsonl", 400),
        ("rollouts.jsonl", None),
        ("timestep_3.jsonl", None),
        ("part-00001.jsonl", None),
    ],
)
def test_step_from_the_name(tmp_path: Path, name: str, step: int | None) -> None:
    assert read_dump([jsonl(tmp_path / name, [ROW])]).steps == [step]


def test_step_from_the_column_first(tmp_path: Path) -> None:
    rows = [{**ROW, "step": step} for step in ("4", 4.0, None, "x")]
    rollouts = read_dump([jsonl(tmp_path / "part.jsonl", rows)])
    assert column(rollouts, "step") == [4, 4, None, None]
    assert rollouts.notes == {"bad_step": 1}
    with pytest.raises(DumpError, match=r"name says step 3, but row 2 says step 4"):
        read_dump([jsonl(tmp_path / "step_3.jsonl", [{**ROW, "step": 3}, {**ROW, "step": 4}])])
    in_folder = jsonl(tmp_path / "exp-iter2" / "part.jsonl", rows)
    assert column(read_dump([in_folder]), "step") == [4, 4, None, None]


# Files


def test_torn_and_broken_lines_leave_the_others(tmp_path: Path) -> None:
    good = json.dumps(ROW).encode()
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    path = tmp_path / "a.jsonl"
    bad = [b'{"a":1, "b":{"a":2}', b"[1]", deep]
    lines = [b"\xef\xbb\xbf" + good, *bad, b"", *[good] * 30, b'{"prompt":"\xe2\x82']
    path.write_bytes(b"\r\n".join(lines) + b"\n\n")
    rollouts = read_dump([path])
    assert column(rollouts, "_row") == [1, *range(6, 36)]
    assert rollouts.notes == {"bad_line": 3, "torn_line": 1}
    path.write_bytes(b"\n".join([good, good, *bad, good]))
    with pytest.raises(DumpError, match=r"3 of 6 lines .*; the first, line 3, is not JSON .*','"):
        read_dump([path])


def test_text_that_is_not_unicode_is_replaced_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"prompt": "p", "response": "x\\udcb2y \\ud83c\\udf78 \\ud83cz", "reward": 1}\n'
        b'{"prompt": "p\xff", "response": "r", "reward": 1}\n'
        b'{"prompt": "p", "response": "\\\\ud800", "reward": 1}\n'
    )
    rollouts = read_dump([path])
    assert column(rollouts, "response") == ["x\ufffdy \U0001f378 \ufffdz", "r", "\\ud800"]
    assert column(rollouts, "prompt") == ["p", "p\ufffd", "p"]
    assert rollouts.notes == {"lone_surrogate": 1, "invalid_utf8": 1, "repaired_prompt": 1}
    assert column(rollouts, "_flags") == [["lone_surrogate"], ["invalid_utf8"], []]
    texts = pa.array([b"\xff\xfe", "é".encode()])
    binary = {"prompt": ["p", "p"], "response": texts, "reward": [1, 1]}
    rollouts = read_dump([parquet(tmp_path / "b.parquet", binary)])
    assert column(rollouts, "response") == ["\ufffd\ufffd", "é"]
    assert rollouts.notes == {"invalid_utf8": 1}


def test_refused_files_say_why_in_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("a", "b")
    contents = {
        "empty.jsonl": (b"", "empty"),
        "a.pkl": (pickle.dumps(ROW), "pickle"),
        "a.pt": ((tmp_path / "zip").read_bytes(), "zip"),
        "lfs.parquet": (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        "page.jsonl": (b"\n<!DOCTYPE html><html>", "HTML"),
        "a.json": (b'[{"prompt": 1}]', "no known dialect; found columns prompt"),
        "a.gz": (b"\x1f\x8b\x08", "packed data is damaged"),
        "cut.parquet": (b"PAR1\x00\x01", "cannot be read as Parquet"),
        "words.txt": (b"hello", "no kind of dump that is known"),
        "words.jsonl": (
            b"\nhello\n",
            r"no line holds a JSON object \(line 2 is not JSON \(column 1",
        ),
        "list.jsonl": (
            b"3\n",
            r"no line holds a JSON object \(line 1 is JSON, but no object \('3'\)\)",
        ),
        "deep.jsonl": (b'{"a":' * 9000, "no line holds a JSON object"),
        "blank.jsonl": (b"\n\n", r"no line holds a JSON object \(all lines are blank\)"),
        "other.jsonl": (b'{"text": 1}\n', "no known dialect; found columns text"),
    }
    for name, (content, reason) in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DumpError, match=reason) as refused:
            read_dump([path])
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)


def test_yaml_aliases_are_written_out_but_not_without_end(tmp_path: Path) -> None:
    group = """- &group
  metadata: &meta {1: one}
  trajectories:
  - {reward: 1, metadata: *meta, messages_and_choices: &chat [{role: user, content: q},
     {role: assistant, content: a}]}
  - {reward: 0, metadata: *meta, messages_and_choices: *chat}
"""
    path = tmp_path / "0003.yaml"
    path.write_text(group)
    rollouts = read_dump([path])
    assert column(rollouts, "reward") == [1.0, 0.0]
    assert column(rollouts, "response") == ["a", "a"]
    laughs = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    for bomb in (laughs, "- &a [*a]\n"):
        path.write_text(bomb)
        with pytest.raises(DumpError, match="beyond all bounds"):
            read_dump([path])


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    for name, reason in {
        "dangling.jsonl": "dangling link",
        "loop": "leads back to itself",
        "missing": "no such file",
        "folder": r"holds no dump \(.parquet",
        "*.jsonl": "no such file",
    }.items():
        with pytest.raises(DumpError, match=reason):
            read_dump([tmp_path / name])
    with pytest.raises(DumpError, match="path is empty"):
        read_dump([""])
    with pytest.raises(DumpError, match="no rows"):
        read_dump([parquet(tmp_path / "a.parquet", {"prompt": [], "response": [], "reward": []})])


def test_copies_are_refused(tmp_path: Path) -> None:
    first, copy = (jsonl(tmp_path / name / "5.jsonl", [ROW]) for name in ("a", "b"))
    with pytest.raises(DumpError, match=r"b/5\.jsonl: a copy of .*a/5\.jsonl"):
        read_dump([first, copy])
    other = jsonl(tmp_path / "b" / "6.jsonl", [ROW])
    assert read_dump([first, other]).steps == [5, 6]


def test_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path / "a") + b"\xff.jsonl"))
    try:
        jsonl(path, [ROW])
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    for given_path in (path, tmp_path):
        with pytest.raises(DumpError, match=r"a\ufffd\.jsonl: the name is not UTF-8"):
            read_dump([given_path])


def test_paths_are_literal(tmp_path: Path) -> None:
    columns = {"prompt": ["p"], "response": ["r"], "reward": [1.0]}
    parquet(tmp_path / "run1" / "f.parquet", {**columns, "response": ["other"]})
    for name in ("run[1]", "a%20b", "sp ace", "q?x", "key=value"):
        rollouts = read_dump([parquet(tmp_path / name / "f.parquet", columns)])
        assert column(rollouts, "response") == ["r"]
        assert column(rollouts, "extra") == [None]


def test_folder_is_read_in_numeric_order_without_strangers(tmp_path: Path) -> None:
    names = ["10.jsonl", "9.jsonl", "val/100.jsonl", ".hidden/1.jsonl", ".h.jsonl"]
    names += ["checkpoints/1.jsonl", "checkpoint-5/1.jsonl", "report/2.jsonl", "deep/er/3.jsonl"]
    for name in names:
        jsonl(tmp_path / name, [ROW])
    (tmp_path / "report" / "result.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("hello")
    assert column(read_dump([tmp_path]), "step") == [9, 10, 3, 100]
    assert column(read_dump([tmp_path / "9.jsonl", tmp_path]), "step") == [9, 10, 3, 100]


def test_dialects_are_not_mixed(tmp_path: Path) -> None:
    jsonl(tmp_path / "1.jsonl", [ROW])
    jsonl(tmp_path / "2.jsonl", [{"input": "p", "output": "o", "score": 1}])
    with pytest.raises(DumpError, match=r"different dialects: canonical .*1\.jsonl.*, verl"):
        read_dump([tmp_path])
    both = {"input": "p", "output": "o", "prompt": "p", "completion": "c", "score": 1}
    with pytest.raises(DumpError, match=r"several dialects, verl .*and trl"):
        read_dump([jsonl(tmp_path / "3.jsonl", [both])])


def test_a_line_of_uneven_columns_is_refused(tmp_path: Path) -> None:
    uneven = {"prompt": ["a", "b"], "response": ["x"], "reward": [1, 2]}
    with pytest.raises(DumpError, match=r"row 1 is a table .* \(prompt 2, response 1, reward 2\)"):
        read_dump([jsonl(tmp_path / "a.jsonl", [uneven])])
