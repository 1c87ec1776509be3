"""`validate` on a dump that is larger than the memory it may take. Asserts memory, never time."""

from pathlib import Path

import pytest
from benchmarks.validate_scale import measured, write

ROWS = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("wide", "limit"), [(False, 0.6e9), (True, 1.0e9)])
def test_a_million_rows_take_little_memory(wide: bool, limit: float, tmp_path: Path) -> None:
    path = write(tmp_path, ROWS, wide=wide, jsonl=False)
    run = measured("validate", path)
    assert run["rows"] == ROWS
    assert run["peak_bytes"] < limit
