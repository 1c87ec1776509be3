"""Dumps of nobody's trainer: other names for the same columns."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dialect_files.case import Case, lines
from ragen_diag.settings import Reading

ROWS = [
    ("What is 6 * 7?", "<think>6*7</think>42", 1.0, "a", "42"),
    ("What is 6 * 7?", "41", 0.0, "a", "42"),
    ("What is 6 * 7?", "seven sixes", 0.5, "b", "42"),
    ("Capital of France?", "Paris", 1.0, "c", "Paris"),
]


def aliases(folder: Path) -> Case:
    """Every column has a name that others use for it."""
    path = lines(
        folder / "samples.jsonl",
        [
            {"training_step": "15", "problem_id": g, "question": p, "raw_completion": r}
            | {"total_reward": s, "target": t}
            for p, r, s, g, t in ROWS
        ],
    )
    expected = tuple(
        {"step": 15, "group": g, "prompt": p, "response": r, "reward": s, "ground_truth": t}
        for p, r, s, g, t in ROWS
    )
    return Case("generic_aliases", (path,), "generic", expected, group_source="explicit")


def parquet(folder: Path) -> Case:
    """The same in Parquet, with an index that pandas left, and the step in the file's name."""
    prompts, responses, rewards, groups, _ = zip(*ROWS, strict=True)
    table = pa.table(
        {
            "input_prompt": prompts,
            "output_response": responses,
            "scalar_reward": pa.array(rewards, pa.float32()),
            "task_hash": groups,
            "__index_level_0__": ["x", "y", "x", "y"],
        }
    )
    path = folder / "step_00030.parquet"
    pq.write_table(table, path)
    expected = tuple(
        {"step": 30, "group": g, "prompt": p, "response": r, "reward": s} for p, r, s, g, _ in ROWS
    )
    return Case("generic_parquet", (path,), "generic", expected, group_source="explicit")


def named(folder: Path) -> Case:
    """Names that nobody else uses, given by the user."""
    path = lines(
        folder / "samples.jsonl",
        [
            {"round": 2, "question": p, "model_text": r, "grade": s, "quiz": g}
            for p, r, s, g, _ in ROWS
        ],
    )
    names = {"response": "model_text", "reward": "grade", "group_id": "quiz", "step": "round"}
    expected = tuple(
        {"step": 2, "group": g, "prompt": p, "response": r, "reward": s} for p, r, s, g, _ in ROWS
    )
    return Case("generic_named", (path,), "generic", expected, Reading(names=names))


def unscored(folder: Path) -> Case:
    """LLaMA-Factory's predictions have no reward at all."""
    path = lines(
        folder / "generated_predictions.jsonl",
        [{"prompt": p, "predict": r, "label": t} for p, r, _, _, t in ROWS],
    )
    expected = tuple(
        {"step": None, "group": p, "prompt": p, "response": r, "reward": None, "ground_truth": t}
        for p, r, _, _, t in ROWS
    )
    return Case("llama_factory", (path,), "generic", expected, Reading(rewards=(("none", 1.0),)))


WRITERS = (aliases, parquet, named, unscored)
