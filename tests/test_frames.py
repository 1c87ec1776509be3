"""Tables that one engine cannot read, or whose shape costs memory."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragen_diag.dumps import read_dump
from ragen_diag.errors import DumpError


def nested(path: Path) -> Path:
    chats = [[{"role": "user", "content": f"{i}?"}] for i in range(6)]
    table = {"messages": chats, "response": list("abcdef"), "reward": [0.0, 1.0] * 3}
    pl.DataFrame(table).write_parquet(path)
    return path


def test_nested_columns_fall_back_to_the_other_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 2 GiB of text in a row group, Arrow does not convert lists of structs."""
    path = nested(tmp_path / "a.parquet")
    whole = read_dump([path])

    def refuse(*_: Any, **__: Any) -> Iterator[pa.RecordBatch]:
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented")
        yield

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", refuse)
    again = read_dump([path])
    assert again.table.equals(whole.table)
    assert again.table["messages"].to_list()[5] == [{"role": "user", "content": "5?"}]

    def refuse_later(self: Any, *_: Any, **__: Any) -> Iterator[pa.RecordBatch]:
        yield self.read().to_batches()[0].slice(0, 2)
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", refuse_later)
    with pytest.raises(DumpError, match="Nested data conversions"):
        read_dump([path])


WIDE = """
import json, resource, sys
import polars as pl, pyarrow as pa, pyarrow.parquet as pq
from ragen_diag.dumps import open_dump
from ragen_diag.settings import Reading
rows = 0
for _, batch in open_dump([sys.argv[1]], Reading()).batches(frozenset(sys.argv[2].split(","))):
    rows += batch.table.height
print(json.dumps({"rows": rows, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("needed", "gigabytes"), [("step,group_id,reward", 0.6), ("step,prompt,response,reward", 1.0)]
)
def test_one_row_group_of_long_texts(tmp_path: Path, needed: str, gigabytes: float) -> None:
    """A million rows of 2 kB in one row group."""
    path = tmp_path / "wide.parquet"
    rows = 1_000_000
    code = (
        "import sys, polars as pl\n"
        f"i = pl.int_range({rows}, eager=True)\n"
        "words = i.hash(1).cast(pl.String) + ' ' + i.hash(2).cast(pl.String)\n"
        "pl.DataFrame({'prompt': (i // 8).cast(pl.String), 'response':\n"
        "    pl.select(pl.concat_str([pl.lit(words)] * 50)).to_series(),\n"
        "    'reward': (i % 2).cast(pl.Float64), 'group_id': i // 8, 'step': i * 0})\\\n"
        f".write_parquet(sys.argv[1], row_group_size={rows}, compression='uncompressed')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert pq.read_metadata(path).num_row_groups == 1
    run = subprocess.run(
        [sys.executable, "-c", WIDE, str(path), needed], check=True, capture_output=True, text=True
    )
    told = json.loads(run.stdout)
    assert told["rows"] == rows
    assert told["peak"] * 1024 < gigabytes * 1e9
