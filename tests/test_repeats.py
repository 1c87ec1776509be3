"""What only the whole dump tells: steps written twice, one reward per trajectory, splits, copies;
and that neither the size of a batch nor `convert` changes a row."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ragen_diag.dumps import frames, read_dump, records
from ragen_diag.dumps.convert import convert
from ragen_diag.errors import DumpError, UsageError
from ragen_diag.settings import DuplicateSteps, Reading

ROOT = Path(__file__).parent.parent


def write(path: Path, rows: Iterable[Mapping[str, Any]], *, written: float | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if written is not None:
        os.utime(path, (written, written))
    return path


def steps(numbers: Iterable[int], tag: str) -> list[dict[str, Any]]:
    """Two prompts with two answers each at every step; answers carry `tag`."""
    return [
        {
            "step": step,
            "prompt": f"{step}.{prompt}?",
            "response": f"{tag} {prompt} {answer}",
            "reward": float(answer),
        }
        for step in numbers
        for prompt in range(2)
        for answer in range(2)
    ]


def kept(folder: Path, choice: DuplicateSteps) -> dict[int, set[str]]:
    """Step -> tags of the rows that stay."""
    table = read_dump([folder], reading=Reading(on_duplicate_step=choice)).table
    tagged = table.with_columns(tag=pl.col("response").str.split(" ").list.first())
    return {step: set(part["tag"]) for (step,), part in tagged.group_by("step")}


def test_a_resumed_run_in_one_file(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl", [*steps(range(1, 11), "old"), *steps(range(8, 16), "new")])
    with pytest.raises(DumpError, match=r"step 8 was written twice in .*run\.jsonl \(4 and 4 rows"):
        read_dump([tmp_path])
    assert kept(tmp_path, "last") == {s: {"old" if s < 8 else "new"} for s in range(1, 16)}
    assert kept(tmp_path, "first") == {s: {"old" if s < 11 else "new"} for s in range(1, 16)}
    assert kept(tmp_path, "merge")[9] == {"old", "new"}
    last = read_dump([tmp_path], reading=Reading(on_duplicate_step="last"))
    assert last.notes == {"step_written_twice": 12}
    assert last.table["group_id"].value_counts()["count"].unique().to_list() == [2]


def test_the_later_of_two_folders_is_the_one_written_later(tmp_path: Path) -> None:
    for step in range(1, 5):
        write(tmp_path / "b" / f"{step}.jsonl", steps([step], "old"), written=1e9)
    for step in range(3, 7):
        write(tmp_path / "a" / f"{step}.jsonl", steps([step], "new"), written=2e9)
    assert kept(tmp_path, "last") == {s: {"old" if s < 3 else "new"} for s in range(1, 7)}
    assert kept(tmp_path, "first") == {s: {"old" if s < 5 else "new"} for s in range(1, 7)}


def test_shards_of_a_step_are_no_repeats(tmp_path: Path) -> None:
    """Ranks that share prompts, and files that share steps but no prompts."""
    write(tmp_path / "ranks" / "rank0.jsonl", steps([1, 2], "zero"))
    write(tmp_path / "ranks" / "rank1.jsonl", steps([1, 2], "one"))
    assert read_dump([tmp_path / "ranks"]).table["group_id"].n_unique() == 4
    for part in range(3):
        rows = [{**row, "prompt": f"{part} {row['prompt']}"} for row in steps([7], "x")]
        write(tmp_path / "parts" / f"{part}" / "step_7.jsonl", rows)
    assert read_dump([tmp_path / "parts"]).table.height == 12
    shuffled = [row for step in (2, 1, 2, 3, 1) for row in steps([step], "x")]
    write(tmp_path / "mixed" / "a.jsonl", shuffled)
    assert read_dump([tmp_path / "mixed"]).notes == {}


TURNS = [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("v", 0), ("v", 1)]


def turn_rows(rewards: Iterable[float | None]) -> list[dict[str, Any]]:
    return [
        {
            "prompt": f"{turn}?",
            "response": "r",
            "reward": reward,
            "group_id": "g",
            "trajectory_id": name,
            "turn": turn,
        }
        for (name, turn), reward in zip(TURNS, rewards, strict=True)
    ]


@pytest.mark.parametrize(
    ("rewards", "how", "expected", "note"),
    [
        ([1, 1, 1, 0, 0, 0], None, [1, 1, 1, 0, 0, 0], {}),
        ([1, None, None, 0, 0, None], None, [1, 1, 1, 0, 0, 0], {"null_reward": 3}),
        ([0, 0, 1, 0.5, 0, 0], None, [1, 1, 1, 0.5, 0, 0], {"turn_rewards_summed": 5}),
        ([1, 2, 3, 9, 4, 6], None, [6, 6, 6, 9, 10, 10], {"turn_rewards_summed": 5}),
        ([1, 2, 3, 9, 4, 6], "last", [3, 3, 3, 9, 6, 6], {"turn_rewards_last_taken": 5}),
        ([1, 2, 3, 9, 4, 6], "mean", [2, 2, 2, 9, 5, 5], {"turn_rewards_averaged": 5}),
    ],
)
def test_a_trajectory_has_one_reward(
    rewards: list[float | None],
    how: Any,
    expected: list[float],
    note: dict[str, int],
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.jsonl", turn_rows(rewards))
    rollouts = read_dump([path], reading=Reading(reward_reduce=how))
    assert rollouts.table["reward"].to_list() == expected
    assert rollouts.notes == note


def chat_rows(prompt: str, rewards: Iterable[float], group: str) -> list[dict[str, Any]]:
    """Conversations of one answer, without an id of their own; `group` names that of the prompt."""
    asked = [{"role": "user", "content": prompt}]
    said = [{"role": "assistant", "content": "r"}]
    return [
        {"prompt": asked, "completion": said, "reward": reward, group: prompt} for reward in rewards
    ]


@pytest.mark.parametrize("group", ["group_id", "example_id"], ids=["trl", "verifiers"])
def test_conversations_without_ids_are_never_one_trajectory(group: str, tmp_path: Path) -> None:
    """In shards whose files and rows have equal names, and in a table that is one record."""
    for rank, rewards in enumerate([[1.0, 0.0], [0.25, 0.5]]):
        path = tmp_path / "step_5" / f"rank{rank}" / "part.jsonl"
        write(path, chat_rows(f"{rank}?", rewards, group))
    shards = read_dump([tmp_path / "step_5"])
    rows = chat_rows("p", [1.0, 0.0, 0.25, 0.5], group)
    table = {"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}
    for rollouts in (shards, read_dump([write(tmp_path / "one.table.json", [table])])):
        assert rollouts.table["reward"].to_list() == [1.0, 0.0, 0.25, 0.5]
        assert rollouts.table["trajectory_id"].n_unique() == 4


def test_ranks_that_count_their_trajectories_anew(tmp_path: Path) -> None:
    """Two files with trajectories 0 and 1 of one turn each are four trajectories."""
    for rank in range(2):
        rows = [
            {
                "step": 1,
                "prompt": "p",
                "response": f"{rank}{place}",
                "reward": float(rank),
                "trajectory_id": place,
                "turn": 0,
            }
            for place in range(2)
        ]
        write(tmp_path / f"rank{rank}.jsonl", rows)
    rollouts = read_dump([tmp_path])
    assert rollouts.table["reward"].to_list() == [0.0, 0.0, 1.0, 1.0]
    assert rollouts.table["trajectory_id"].n_unique() == 4
    assert rollouts.notes == {"trajectory_ids_repeat_in_files": 4}


def test_rows_that_look_like_turns_are_named_as_such(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a" * (n + 1), "response": "r", "reward": 0.0, "group_id": "g"} for n in range(3)
    ]
    with pytest.raises(DumpError, match="look like turns of one trajectory"):
        read_dump([write(tmp_path / "a.jsonl", rows)])


def test_ids_that_cut_across_the_prompts_give_way(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"{i % 5}?", "response": f"{i}", "reward": i % 2, "group_id": i // 3}
        for i in range(15)
    ]
    rollouts = read_dump([write(tmp_path / "a.jsonl", rows)])
    assert rollouts.notes == {"ids_contradict_prompts": 15}
    groups = rollouts.table.partition_by("group_id")
    assert [set(group["prompt"]) for group in groups] == [{f"{i}?"} for i in range(5)]


def test_ids_that_restart_in_every_shard_give_way(tmp_path: Path) -> None:
    prompts = ["a"] * 2 + ["b"] * 4 + ["c"] * 6
    rows = [
        {"prompt": prompt, "response": f"{i}", "reward": 0.0, "id": i % 6}
        for i, prompt in enumerate(prompts)
    ]
    for part in range(2):
        write(tmp_path / f"{part}.jsonl", [{**row, "step": 1} for row in rows[part * 6 :][:6]])
    with pytest.raises(DumpError, match="its name says step 0, but row 1 says step 1"):
        read_dump([tmp_path])
    for part in range(2):
        (tmp_path / f"{part}.jsonl").rename(tmp_path / f"part-{part}.jsonl")
    rollouts = read_dump([tmp_path], reading=Reading(names={"group_id": "id"}))
    assert rollouts.notes == {"ids_contradict_prompts": 12}
    sizes = [part.height for part in rollouts.table.partition_by("group_id", maintain_order=True)]
    assert sizes == [2, 4, 6]


def test_splits_of_one_step(tmp_path: Path) -> None:
    train = write(tmp_path / "train" / "5.jsonl", steps([5], "t"))
    write(tmp_path / "eval" / "5.jsonl", steps([5], "e"))
    both = read_dump([tmp_path], reading=Reading(on_duplicate_step="merge"))
    assert dict(both.table["split"].value_counts().rows()) == {"train": 4, "eval": 4}
    one = read_dump([tmp_path], reading=Reading(split="eval"))
    assert set(one.table["split"]) == {"eval"}
    assert one.notes == {"other_split": 4}
    with pytest.raises(DumpError, match=r"no rows of split 'x'; splits: train"):
        read_dump([train], reading=Reading(split="x"))


def many(count: int) -> list[dict[str, Any]]:
    """Rows whose columns change their type and presence on the way."""
    rows: list[dict[str, Any]] = []
    for i in range(count):
        row: dict[str, Any] = {"prompt": f"{i // 4}?", "response": f"{i}", "step": i // 20}
        row["reward"] = i % 2 if i < count // 2 else 0.25 * (i % 5)
        row["group_id"] = None if i % 8 < 4 else f"g{i // 4}"
        row["sample_id"] = ["a", "a#1", None][i % 3]
        if i > count // 3:
            row["note"] = {"n": i} if i % 2 else "text"
        rows.append(row)
    rows[count - 2]["reward"] = "n/a"
    return rows


def test_the_size_of_a_batch_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = write(tmp_path / "a.jsonl", many(120))
    whole = read_dump([lines])
    whole.table.write_parquet(tmp_path / "whole.parquet", row_group_size=50)
    table = read_dump([tmp_path / "whole.parquet"])
    chat = ROOT.parent / "shared" / "samples" / "verifiers__math_python_results.jsonl"
    chats = read_dump([chat]) if chat.exists() else None
    monkeypatch.setattr(records, "CHUNK_ROWS", 7)
    monkeypatch.setattr(frames, "BATCH_ROWS", 7)
    parts = read_dump([lines])
    assert parts.table.equals(whole.table)
    assert parts.notes == whole.notes
    assert read_dump([tmp_path / "whole.parquet"]).table.equals(table.table)
    if chats is not None:
        assert read_dump([chat]).table.equals(chats.table)


def test_convert_reads_back_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under a name that looks like a step, and with rows left out on the way."""
    write(tmp_path / "in" / "a.jsonl", [*steps(range(1, 11), "old"), *steps(range(8, 16), "new")])
    reading = Reading(on_duplicate_step="last")
    whole = read_dump([tmp_path / "in"], reading=reading)
    monkeypatch.setattr(records, "CHUNK_ROWS", 7)
    done = convert([tmp_path / "in"], tmp_path / "step_00003.parquet", reading=reading)
    again = read_dump([tmp_path / "step_00003.parquet"])
    assert again.table.equals(whole.table)
    assert (done.rows, done.left_out, done.dialect) == (60, 12, "canonical")
    assert done.notes == whole.notes
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["step_00003.parquet"]


def test_convert_replaces_nothing_unasked(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", steps([1], "x"))
    out = tmp_path / "out.parquet"
    convert([source], out)
    first = out.read_bytes()
    with pytest.raises(UsageError, match="is there already"):
        convert([source], out)
    with pytest.raises(UsageError, match="part of the dump itself"):
        convert([source], source, force=True)
    with pytest.raises(UsageError, match="there is no such folder"):
        convert([source], tmp_path / "no" / "out.parquet")
    convert([source], out, force=True)
    assert out.read_bytes() == first


def test_a_mapped_column_wins_over_the_dialect(tmp_path: Path) -> None:
    rows = [{"input": "p", "output": f"{i}", "score": 0.0, "qid": i // 2, "r": i} for i in range(4)]
    path = write(tmp_path / "1.jsonl", rows)
    mapped = read_dump([path], reading=Reading(names={"group_id": "qid", "reward": "r"}))
    assert mapped.table["group_id"].to_list() == ["0", "0", "1", "1"]
    assert mapped.table["reward"].to_list() == [0, 1, 2, 3]
    assert mapped.dialect == "verl"
    with pytest.raises(UsageError, match="has a column score already"):
        read_dump([path], reading=Reading(names={"score": "r"}))


def test_rewards_are_weighed_keyed_and_reduced(tmp_path: Path) -> None:
    rows = [
        {"prompt": "p", "response": "a", "reward": {"score": 1.0, "fmt": 0.5}, "x": 1, "y": 10},
        {"prompt": "p", "response": "b", "reward": {"score": 0.0, "fmt": 1.0}, "x": 2, "y": None},
    ]
    path = write(tmp_path / "a.jsonl", rows)

    def rewards(**reading: Any) -> list[float | None]:
        return read_dump([path], reading=Reading(**reading)).table["reward"].to_list()

    assert rewards() == [1.0, 0.0]
    assert rewards(reward_key="fmt") == [0.5, 1.0]
    assert rewards(rewards=(("x", 1.0), ("y", 0.5))) == [6.0, 2.0]
    assert rewards(rewards=(("none", 1.0),)) == [None, None]
    with pytest.raises(DumpError, match="no reward has the key 'z'; the keys are score, fmt"):
        rewards(reward_key="z")
    parts = read_dump([path]).table["reward_components"].to_list()
    assert parts == [[{"key": "fmt", "value": 0.5}], [{"key": "fmt", "value": 1.0}]]
    unclear = [{"prompt": "p", "response": "a", "reward": {"u": 1.0, "v": 0.5}}]
    with pytest.raises(DumpError, match=r"row 1: .* keys u, v; say which .*--reward-key"):
        read_dump([write(tmp_path / "b.jsonl", unclear)])


def test_a_reward_per_token_is_called_one(tmp_path: Path) -> None:
    rows = [
        {"prompt": "p", "response": "a", "response_ids": [1, 2, 3], "reward": [0, 0, 1.5]},
        {"prompt": "p", "response": "b", "response_ids": [1, 2, 3], "reward": [1, 2]},
    ]
    path = write(tmp_path / "a.jsonl", rows)
    rollouts = read_dump([path])
    assert rollouts.table["reward"].to_list() == [1.5, 3.0]
    assert rollouts.notes == {"reward_list_summed": 1, "reward_per_token_summed": 1}
    last = read_dump([path], reading=Reading(reward_reduce="last"))
    assert last.table["reward"].to_list() == [1.5, 2.0]


def test_too_many_bad_rewards_are_refused(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "response": "r", "reward": "n/a" if i < 20 else i} for i in range(100)]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(DumpError, match=r"20 of 100 rewards are no numbers \(.*a\.jsonl row 1, "):
        read_dump([path])
    allowed = read_dump([path], reading=Reading(max_bad_share=0.2))
    assert allowed.notes == {"bad_reward": 20}
    assert allowed.table["reward"].null_count() == 20
