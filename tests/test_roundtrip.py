"""Any rows that a format can hold, written in that format, are the rows that are read."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dialect_files.case import lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragen_diag.dumps import read_dump
from ragen_diag.rollouts import SCHEMA

Row = Mapping[str, Any]
Write = Callable[[Path, Sequence[Row]], Path]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBER = st.floats(allow_nan=False, allow_infinity=False, width=32)
REASONS = ["stop", "length", "abort", "error", "unknown"]
ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
IDS = st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=4)


@st.composite
def samples(draw: st.DrawFn, text: st.SearchStrategy[str] = TEXT) -> list[dict[str, Any]]:
    """Rows of a few groups over a few steps, in the order of their steps, groups together."""
    asked = draw(st.lists(st.tuples(text, text), min_size=1, max_size=3, unique_by=lambda a: a[0]))
    rows = []
    for step in sorted(draw(st.sets(st.integers(0, 12), min_size=1, max_size=3))):
        for group, (prompt, truth) in enumerate(asked):
            for _ in range(draw(st.integers(1, 3))):
                row = {"step": step, "group": group, "prompt": prompt, "ground_truth": truth}
                row |= {"response": draw(text), "reward": draw(NUMBER), "second": draw(NUMBER)}
                rows.append(row | {"advantage": draw(NUMBER)})
    return rows


def steps_of(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["step"], []).append(row)
    return found


def verl(folder: Path, rows: Sequence[Row]) -> Path:
    for step, part in steps_of(rows).items():
        lines(
            folder / f"{step}.jsonl",
            [
                {"input": r["prompt"], "output": r["response"], "gts": r["ground_truth"]}
                | {"score": r["reward"], "step": step, "acc": r["second"]}
                for r in part
            ],
        )
    return folder


def trl_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {
        "step": [r["step"] for r in rows],
        "prompt": [r["prompt"] for r in rows],
        "completion": [r["response"] for r in rows],
        "accuracy_reward": [r["reward"] - r["second"] for r in rows],
        "format_reward": [r["second"] for r in rows],
        "advantage": [r["advantage"] for r in rows],
    }


def trl(folder: Path, rows: Sequence[Row]) -> Path:
    for step, part in steps_of(rows).items():
        pq.write_table(pa.table(trl_columns(part)), folder / f"completions_{step:05d}.parquet")
    return folder


def wandb(folder: Path, rows: Sequence[Row]) -> Path:
    columns = trl_columns(rows) | {"step": [str(r["step"]) for r in rows]}
    data = [list(cells) for cells in zip(*columns.values(), strict=True)]
    path = folder / "completions_1_0a1b2c3d4e.table.json"
    path.write_text(json.dumps({"columns": list(columns), "data": data}), encoding="utf-8")
    return path


def ms_swift(folder: Path, rows: Sequence[Row]) -> Path:
    records = []
    for step, part in steps_of(rows).items():
        columns = trl_columns(part)
        record = {"step": [str(step)] * len(part), "prompt": columns["prompt"]}
        record |= {"completion": columns["completion"], "MathAccuracy": columns["accuracy_reward"]}
        records.append(
            record | {"Format": columns["format_reward"], "advantages": columns["advantage"]}
        )
    return lines(folder / "completions.jsonl", records)


def verifiers(folder: Path, rows: Sequence[Row]) -> Path:
    records = [
        {"example_id": r["group"], "prompt": [{"role": "user", "content": r["prompt"]}]}
        | {"completion": [{"role": "assistant", "content": r["response"]}]}
        | {"answer": r["ground_truth"], "task": "default", "reward": r["reward"], "error": None}
        | {"is_completed": True, "is_truncated": False, "metrics": {"acc": r["second"]}}
        | {"acc": r["second"], "stop_condition": "done"}
        for r in rows
    ]
    return lines(folder / "results.jsonl", records)


TABLE = ["step", "prompt", "response", "reward"]
FORMATS: dict[Write, list[str]] = {
    verl: [*TABLE, "ground_truth"],
    trl: [*TABLE, "advantage"],
    wandb: [*TABLE, "advantage"],
    ms_swift: [*TABLE, "advantage"],
    verifiers: ["response", "reward", "ground_truth"],
}
"""Writer -> the columns its format holds."""


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
@given(rows=samples())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_trainer_s_format_holds_what_was_written(
    write: Write, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rollouts = read_dump([write(tmp_path_factory.mktemp("dump"), rows)])
    for name in FORMATS[write]:
        wanted = [row[name] for row in rows]
        if write in (trl, wandb, ms_swift) and name == "reward":
            wanted = [(row["reward"] - row["second"]) + row["second"] for row in rows]
        assert rollouts.table[name].to_list() == wanted, name
    key = (
        (lambda row: row["group"])
        if write is verifiers
        else lambda row: (row["step"], row["group"])
    )
    steps, ids = rollouts.table["step"].to_list(), rollouts.table["group_id"].to_list()
    pairs = {(key(row), step, one) for row, step, one in zip(rows, steps, ids, strict=True)}
    assert len(pairs) == len({key(row) for row in rows}) == len(set(zip(steps, ids, strict=True)))


@st.composite
def canonical(draw: st.DrawFn) -> pl.DataFrame:
    """A canonical table without the columns of provenance, one row at least."""
    said = st.lists(st.fixed_dictionaries({"role": ROLES, "content": TEXT}), min_size=1, max_size=2)
    asked = draw(st.lists(TEXT | said, min_size=1, max_size=3))
    parts = st.lists(TEXT.filter(bool), max_size=2, unique=True)
    rows = []
    for number in range(draw(st.integers(1, 5))):
        group = draw(st.integers(0, len(asked) - 1))
        prompt = asked[group]
        ids = draw(IDS)
        # A log-prob belongs to a token: there are as many as ids, or none.
        logprobs = draw(
            st.none() | st.lists(NUMBER, min_size=len(ids or ()), max_size=len(ids or ()))
        )
        components = [{"key": key, "value": draw(NUMBER)} for key in draw(parts)]
        rows.append(
            {
                "step": draw(st.integers(0, 3)),
                "group_id": f"g{group}",
                "group_source": "explicit",
                "sample_id": f"s{number}",
                "trajectory_id": f"t{number}",
                "turn": draw(st.integers(0, 2)),
                "split": draw(st.sampled_from(["train", "val", None])),
                "prompt": prompt if isinstance(prompt, str) else None,
                "messages": None if isinstance(prompt, str) else prompt,
                "response": draw(TEXT),
                "reward": draw(NUMBER),
                "reward_components": components or None,
                "advantage": draw(st.none() | NUMBER),
                "ground_truth": draw(st.none() | TEXT),
                "finish_reason": draw(
                    st.sampled_from(["stop", "length", "abort", "error", "unknown"])
                ),
                "prompt_ids": draw(IDS),
                "response_ids": ids,
                "rollout_logprobs": logprobs if ids else None,
                "env": draw(st.none() | TEXT),
            }
        )
    return pl.DataFrame(rows, schema={name: SCHEMA[name] for name in rows[0]})


def ndjson(path: Path, table: pl.DataFrame) -> Path:
    table.write_ndjson(path)
    return path


def parquet(path: Path, table: pl.DataFrame) -> Path:
    table.write_parquet(path)
    return path


def arrow(path: Path, table: pl.DataFrame) -> Path:
    table.write_ipc(path)
    return path


def arrow_stream(path: Path, table: pl.DataFrame) -> Path:
    table.write_ipc_stream(path)
    return path


CONTAINERS = {"a.jsonl": ndjson, "a.parquet": parquet, "a.arrow": arrow, "s.arrow": arrow_stream}


@pytest.mark.parametrize("name", CONTAINERS)
@given(table=canonical())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_canonical_table_reads_back(
    name: str, table: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = CONTAINERS[name](tmp_path_factory.mktemp("dump") / name, table)
    rollouts = read_dump([path])
    assert rollouts.dialect == "canonical"
    assert rollouts.notes == {}
    assert rollouts.table.select(table.columns).to_dicts() == table.to_dicts()


# A CSV cell cannot tell null from "", and Python's own writer cannot hold a NUL.
CELL = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=9
)


@given(rows=samples(CELL))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_csv_holds_texts_and_numbers(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("dump") / "rows.csv"
    names = ["prompt", "response", "reward", "step", "ground_truth"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*names, "group_id"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "group_id": row["group"]} for row in rows)
    rollouts = read_dump([path])
    for name in names:
        assert rollouts.table[name].to_list() == [row[name] for row in rows], name
    assert rollouts.table["group_id"].to_list() == [str(row["group"]) for row in rows]
