"""TRL: the Parquet file of one logging step, and the W&B table it wrote before that."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dialect_files.case import Case, Row, chat
from ragen_diag.settings import Reading

SUM, CITY = chat("What is 6 * 7?"), chat("Name the capital of France.")
NAN = float("nan")

# prompt, completion, correctness, format, answer that the user logs, advantage
STEP_5 = [
    (SUM, "<think>6*7</think>42", 1.0, 0.5, "42", 0.70703607),
    (SUM, "41", 0.0, 0.0, "41", -0.70703607),
    (CITY, "Paris", 1.0, NAN, None, 0.0),
    (CITY, "<think>it is</think>Paris", 1.0, None, "Paris", 0.0),
    # The sampler drew the first prompt again: two groups, one text.
    (SUM, "forty two", 0.0, 0.5, None, -0.70697217),
    (SUM, "<think>six sevens</think>42", 1.0, 1.0, "42", 0.70697217),
]
STEP_10 = [(CITY, "Lyon", 0.0, 0.0, None, NAN), (CITY, "Paris", 1.0, 0.0, "Paris", NAN)]


def parquet(folder: Path) -> Case:
    """`completions_{step:05d}.parquet`: a column per reward function, none for their sum."""
    expected: list[Row] = []
    for step, rows in ((5, STEP_5), (10, STEP_10)):
        _completions(folder / "completions" / f"completions_{step:05d}.parquet", step, rows)
        expected += _expected(step, rows)
    return Case(
        "trl_parquet", (folder / "completions",), "trl", tuple(expected), group_source="contiguous"
    )


def weighted(folder: Path) -> Case:
    """The weights of the functions are not in the file, so they are given."""
    path = folder / "completions" / "completions_00005.parquet"
    _completions(path, 5, STEP_5)
    rewards = (("correctness_reward", 2.0), ("format_reward", 0.5))
    expected = []
    for row in _expected(5, STEP_5):
        known = row["components"]
        total = 2 * known["correctness_reward"] + 0.5 * known.get("format_reward", 0.0)
        expected.append(row | {"reward": total})
    return Case("trl_weighted", (path,), "trl", tuple(expected), Reading(rewards=rewards))


def _completions(path: Path, step: int, rows: list[tuple[Any, ...]]) -> None:
    prompts, completions, correct, formatted, answers, advantages = zip(*rows, strict=True)
    table = pa.table(
        {
            "step": pa.array([step] * len(rows), pa.int64()),
            "prompt": pa.array(prompts, pa.string()),
            "completion": pa.array(completions, pa.string()),
            "correctness_reward": pa.array(correct, pa.float64()),
            "format_reward": pa.array(formatted, pa.float64()),
            "extracted_answer": pa.array(answers, pa.string()),
            "advantage": pa.array(advantages, pa.float64()),
        }
    )
    # What pandas adds when it writes a frame with a plain index.
    index = {"kind": "range", "name": None, "start": 0, "stop": len(rows), "step": 1}
    pandas = {"index_columns": [index], "column_indexes": [], "columns": [], "creator": {}}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


def _expected(step: int, rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    expected = []
    for place, (prompt, completion, correct, formatted, _, advantage) in enumerate(rows):
        parts = {"correctness_reward": correct, "format_reward": formatted}
        known = {k: v for k, v in parts.items() if v is not None and not math.isnan(v)}
        expected.append(
            {"step": step, "group": place // 2, "prompt": prompt, "response": completion}
            | {"reward": sum(known.values()), "components": known}
            | {"advantage": None if math.isnan(advantage) else advantage}
        )
    return expected


def table(folder: Path) -> Case:
    """The W&B table up to 0.27: the step as a text; the file's number counts W&B's own logs."""
    columns = ["step", "prompt", "completion", "correctness_reward", "format_reward", "advantage"]
    rows = [STEP_5[0], STEP_5[1], STEP_5[4], STEP_5[5]]
    data = [["12", p, c, r, f, a] for p, c, r, f, _, a in rows]
    path = _wandb(folder, "completions_25_9f86d081884c7d659a2f", columns, data)
    expected = [row | {"group": "one"} for row in _expected(12, rows)]
    return Case("trl_table", (path,), "trl", tuple(expected))


def old_table(folder: Path) -> Case:
    """Up to 0.16 one `reward` column and no advantage."""
    columns = ["step", "prompt", "completion", "reward"]
    data = [
        ["3", SUM, "42", 1.5],
        ["3", SUM, "41", 0.0],
        ["3", CITY, "Paris", 1.0],
        ["3", CITY, "", 0.0],
    ]
    path = _wandb(folder, "completions_3_60303ae22b998861bce3", columns, data)
    expected = tuple(
        {"step": 3, "group": p, "prompt": p, "response": c, "reward": r, "advantage": None}
        for _, p, c, r in data
    )
    return Case("trl_old_table", (path,), None, expected)


def _wandb(folder: Path, stem: str, columns: list[str], data: list[list[Any]]) -> Path:
    path = folder / "wandb/run-20250601_080000-x1y2z3/files/media/table" / f"{stem}.table.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"columns": columns, "data": data}), encoding="utf-8")
    return path


WRITERS = (parquet, weighted, table, old_table)
