"""The table that was read against the rows that were expected: a list of every disagreement."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dialect_files.case import Case
from ragen_diag.rollouts import SCHEMA, Rollouts

LABELS = {"group": "group_id", "trajectory": "trajectory_id"}
NUMBERS = ("reward", "advantage")


def disagreements(case: Case, rollouts: Rollouts) -> list[str]:
    """Every point in which `rollouts` is not what `case` says, in words; empty if there is none."""
    rows = rollouts.table.to_dicts()
    found = [f"column {name} is missing" for name in SCHEMA if name not in rollouts.table.columns]
    if case.dialect is not None and rollouts.dialect != case.dialect:
        found.append(f"dialect {rollouts.dialect!r}, not {case.dialect!r}")
    found += _notes(case, rollouts.notes)
    if case.group_source is not None:
        sources = {row["group_source"] for row in rows}
        if sources != {case.group_source}:
            found.append(f"group_source {sorted(map(str, sources))}, not {case.group_source!r}")
    if len(rows) != len(case.rows):
        texts = [(row["response"] or "")[:40] for row in rows]
        return [*found, f"{len(rows)} rows, not {len(case.rows)}: {texts}"]
    for place, (wanted, row) in enumerate(zip(case.rows, rows, strict=True)):
        found += [f"row {place}: {text}" for text in _row(wanted, row)]
    found += _turns(case.rows, rows)
    for label, column in LABELS.items():
        found += _labels(case.rows, rows, label, column)
    samples = [(row["step"], row["sample_id"]) for row in rows]
    if None in {sample for _, sample in samples} or len(set(samples)) != len(samples):
        found.append("sample_id is null or not unique within its step")
    return found


def _notes(case: Case, notes: Mapping[str, int]) -> list[str]:
    if case.clean and notes:
        return [f"notes {dict(notes)}, though nothing is wrong with the files"]
    return [
        f"notes[{reason!r}] is {notes.get(reason)}, not {count}"
        for reason, count in case.notes.items()
        if notes.get(reason) != count
    ]


def _row(wanted: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    found = []
    for key, value in wanted.items():
        if key in LABELS or key == "turn":
            continue
        got, same = _compare(key, value, row)
        if not same:
            found.append(f"{key} {got!r}, not {value!r}")
    return found


def _compare(key: str, value: Any, row: Mapping[str, Any]) -> tuple[Any, bool]:
    match key:
        case "components" | "components_have":
            pairs = row["reward_components"] or []
            got = {pair["key"]: pair["value"] for pair in pairs if pair["value"] is not None}
            if key == "components_have":
                got = {name: number for name, number in got.items() if name in value}
            same = got.keys() == (value or {}).keys()
            return got, same and all(close(got[name], value[name]) for name in got)
        case "messages":
            got = [(one["role"], one["content"]) for one in row["messages"] or []]
            return got, got == value
        case "ground_truth":
            got = row["ground_truth"]
            if value is None or isinstance(value, str):
                return got, got == value
            return got, got is not None and json.loads(got) == value
        case "rollout_logprobs":
            got = row[key]
            if value is None or got is None:
                return got, got is value
            return got, len(got) == len(value) and all(map(close, got, value))
        case "response_has":
            return row["response"], all(text in (row["response"] or "") for text in value)
        case _ if key in NUMBERS:
            return row[key], close(row[key], value)
        case _:
            return row[key], row[key] == value


def close(got: float | None, value: float | None) -> bool:
    """Equal up to a float32's precision; None equals None alone, NaN equals nothing."""
    if got is None or value is None:
        return got is value
    return math.isclose(got, value, rel_tol=1e-6, abs_tol=1e-7)


def _turns(wanted: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Turns are compared as distances from their trajectory's first row, wherever that counts."""
    found, first = [], {}
    for place, (one, row) in enumerate(zip(wanted, rows, strict=True)):
        if "turn" not in one:
            continue
        start = first.setdefault((one.get("step"), one["trajectory"]), row["turn"])
        if row["turn"] is None or start is None or row["turn"] - start != one["turn"]:
            found.append(f"row {place}: turn {row['turn']} (first {start}), not {one['turn']}")
    return found


def _labels(
    wanted: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], label: str, column: str
) -> list[str]:
    """Labels and ids must be one to one within a step."""
    found, id_of, label_of = [], {}, {}
    for place, (one, row) in enumerate(zip(wanted, rows, strict=True)):
        if label not in one:
            continue
        name, value = (row["step"], one[label]), (row["step"], row[column])
        if value[1] is None:
            found.append(f"row {place}: {column} is null")
        elif id_of.setdefault(name, value) != value:
            found.append(f"row {place}: {label} {one[label]!r} has two ids")
        elif label_of.setdefault(value, name) != name:
            found.append(
                f"row {place}: {label} {one[label]!r} shares its id with {label_of[value][1]!r}"
            )
    return found
