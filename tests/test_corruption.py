"""A damaged dump gives the rows that are whole, and counts the rest, or one line that says why."""

import gzip
import json
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dialect_files import slime
from dialect_files.containers import PACKED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragen_diag.dumps import read_dump
from ragen_diag.dumps.convert import convert
from ragen_diag.errors import DumpError
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import Reading

FIELDS = ("prompt", "response", "reward", "step")
ROWS: list[dict[str, Any]] = [
    {"prompt": f"q{number // 4}", "response": f"r{number} é\n", "reward": number / 8, "step": 4}
    for number in range(24)
]
CANONICAL = [{**row, "group_id": row["prompt"]} for row in ROWS]
VERL = [
    {"input": r["prompt"], "output": r["response"], "gts": "t", "score": r["reward"], "step": 4}
    for r in ROWS
]
VERL_NAMES = {"prompt": "input", "response": "output", "reward": "score", "step": "step"}

Damage = Callable[[bytes], bytes]


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    """One byte changed, or the file cut, anywhere."""
    where = draw(st.floats(0, 1, exclude_max=True))
    mask = draw(st.none() | st.integers(1, 255))

    def damage(data: bytes) -> bytes:
        place = int(where * len(data))
        if mask is None:
            return data[:place]
        return data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]

    return damage


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


def read(path: Path, data: bytes) -> Rollouts | None:
    """What is read, or None if it is refused in one line. Anything else is a failure."""
    path.write_bytes(data)
    try:
        return read_dump([path])
    except DumpError as error:
        assert path.name in str(error)
        assert "\n" not in str(error)
        return None


def tuples(rollouts: Rollouts) -> list[tuple[Any, ...]]:
    return list(rollouts.table.select(FIELDS).iter_rows())


def as_json_reads(line: bytes, names: dict[str, str]) -> tuple[Any, ...] | None:
    """The row of one line, or None where the line or one of its values is no longer sound."""
    try:
        row = json.loads(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    prompt, response, reward, step = (row.get(names[name]) for name in FIELDS)
    sound = isinstance(prompt, str) and isinstance(response, str) and type(step) is int
    if not sound or type(reward) is not float or not math.isfinite(reward):
        return None
    return prompt, response, reward, step


@pytest.mark.parametrize(
    ("name", "rows", "names"),
    [("4.jsonl", VERL, VERL_NAMES), ("rows.jsonl", CANONICAL, {name: name for name in FIELDS})],
    ids=["verl", "canonical"],
)
@given(damage=damages())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_whole_lines_of_a_damaged_file_are_read(
    name: str,
    rows: list[dict[str, Any]],
    names: dict[str, str],
    damage: Damage,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    data = damage(jsonl(rows))
    rollouts = read(tmp_path_factory.mktemp("dump") / name, data)
    if rollouts is None:
        return
    kept = [line for line in data.split(b"\n") if line.strip()]
    sound = [row for line in kept if (row := as_json_reads(line, names)) is not None]
    missing = Counter(sound) - Counter(tuples(rollouts))
    assert not missing, f"lost or changed: {missing}, notes {dict(rollouts.notes)}"
    lost = len(kept) - rollouts.table.height
    assert sum(rollouts.notes.values()) >= lost
    assert rollouts.table.height <= len(rows)


@pytest.mark.parametrize(
    "line", [b'{"prompt": "q", "resp', b"null", b"\x81\x82", b'{"a":1, "b":{"a":2}', b"[1]"]
)
@pytest.mark.parametrize("place", [0, 11, 23])
def test_one_bad_line_costs_one_row(line: bytes, place: int, tmp_path: Path) -> None:
    kept = jsonl(CANONICAL).splitlines(keepends=True)
    kept[place] = line + b"\n"
    rollouts = read(tmp_path / "rows.jsonl", b"".join(kept))
    assert rollouts is not None
    wanted = [tuple(row[name] for name in FIELDS) for row in ROWS]
    assert tuples(rollouts) == wanted[:place] + wanted[place + 1 :]
    assert sum(rollouts.notes.values()) == 1


@given(damage=damages())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_damaged_gzip_never_changes_a_row(
    damage: Damage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = damage(gzip.compress(jsonl(CANONICAL), mtime=0))
    rollouts = read(tmp_path_factory.mktemp("dump") / "rows.jsonl.gz", data)
    if rollouts is not None:
        wanted = [tuple(row[name] for name in FIELDS) for row in ROWS]
        assert tuples(rollouts) == wanted[: rollouts.table.height]
        assert rollouts.table.height == 24 or rollouts.notes


def survey(path: Path, data: bytes, whole: pl.DataFrame | None, places: int) -> None:
    """Reads `data` with one bit changed, and cut, at so many places; the last is left in a file.

    For a process of its own, which a native library may end. With `whole`, what is read must be
    that table.
    """
    for place in range(0, len(data), 1 + len(data) // places):
        path.with_suffix(".place").write_text(str(place))
        for damaged in (data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], data[:place]):
            rollouts = read(path, damaged)
            if rollouts is not None and whole is not None:
                assert rollouts.table.equals(whole), place


def surveyed(
    path: Path, data: bytes, whole: pl.DataFrame | None = None, *, places: int = 900
) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        future = pool.submit(survey, path, data, whole, places)
        try:
            future.result()
        except BrokenProcessPool:
            place = path.with_suffix(".place").read_text()
            pytest.fail(f"the process died over a file damaged at byte {place} of {len(data)}")


BINARY: dict[str, Callable[[Path], bytes]] = {
    "rows.parquet": lambda folder: parquet(CANONICAL),
    "file.arrow": lambda folder: PACKED["file.arrow"](),
    "stream.arrow": lambda folder: PACKED["stream.arrow"](),
    "lines.jsonl.zst": lambda folder: PACKED["lines.jsonl.zst"](),
    "4.pt": lambda folder: slime.objects(folder).paths[0].read_bytes(),
}
"""File name -> its bytes, for which a folder may be needed."""


@pytest.mark.parametrize("name", BINARY)
def test_damaged_binaries_are_read_or_refused(name: str, tmp_path: Path) -> None:
    # Parquet has lengths in many places that a reader must not trust.
    places = 900 if name.endswith(".parquet") else 250
    surveyed(tmp_path / name, BINARY[name](tmp_path), places=places)


def test_a_converted_table_is_itself_or_refused(tmp_path: Path) -> None:
    source = tmp_path / "4.jsonl"
    source.write_bytes(jsonl(VERL))
    converted = tmp_path / "out.parquet"
    convert([source], converted, reading=Reading())
    whole = read_dump([converted]).table
    surveyed(converted, converted.read_bytes(), whole)
