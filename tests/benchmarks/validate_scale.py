"""How `validate` scales: rows per second and peak memory, beside plain polars on the same file.

    python tests/benchmarks/validate_scale.py --rows 10000000
    python tests/benchmarks/validate_scale.py --rows 1000000 --wide
    python tests/benchmarks/validate_scale.py --rows 500000 --jsonl

Writes a dump of groups of 8 into a temporary folder (or reads the one named by --file) and runs
each contender in a process of its own, in turn, --repeat times; the best time of each counts.
"plain polars" aggregates every column that validate reads, "streaming polars" does so by its
streaming engine, "narrow polars" the reward alone by that engine.
Not collected by pytest; tests/test_validate_scale.py runs it for its memory.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl

GROUP_SIZE, STEPS = 8, 50
ROW_GROUP = 250_000
WORDS = 300
"""Of a wide response, about 2 kB."""


def tables(rows: int, *, wide: bool) -> Iterator[pl.DataFrame]:
    """A dump in pieces: step, group_id, prompt, response, reward."""
    per_step = max(1, rows // GROUP_SIZE // STEPS)
    size = ROW_GROUP if not wide else ROW_GROUP // 10
    for first in range(0, rows, size):
        row = pl.int_range(first, min(first + size, rows), eager=True)
        group = row // GROUP_SIZE
        frame = pl.DataFrame({"row": row, "group": group, "step": group // per_step})
        text = pl.format("{} then {} so</think> {}", row % 977, group % 31, row % 13)
        if wide:
            text = pl.format("{} {}", text, pl.lit("so 7 + ") + (row % 9973).cast(pl.String))
            text = pl.concat_str([text] * (WORDS // 5), separator=" ")
        yield frame.select(
            "step",
            pl.format("p{}", "group").alias("group_id"),
            pl.format("What is {} plus {}? <think>", pl.col("group") % 100_000, "group").alias(
                "prompt"
            ),
            text.alias("response"),
            ((row * 2_654_435_761) % 1000 < 300).cast(pl.Float64).alias("reward"),
        )


def write(folder: Path, rows: int, *, wide: bool, jsonl: bool) -> Path:
    """The dump as one file; its row groups are those of `tables`."""
    if jsonl:
        path = folder / "rollouts.jsonl"
        with path.open("wb") as stream:
            for table in tables(rows, wide=wide):
                table.write_ndjson(stream)
        return path
    import pyarrow.parquet as pq

    path = folder / "rollouts.parquet"
    writer = None
    for table in tables(rows, wide=wide):
        part = table.to_arrow()
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()
    return path


def validate(path: Path) -> int:
    """The whole survey, as the command runs it."""
    from ragen_diag.survey import survey

    found = survey(path)
    assert len(found.to_json()) > 0
    return found.rows


def _scanned(path: Path) -> pl.LazyFrame:
    return pl.scan_ndjson(path) if path.suffix == ".jsonl" else pl.scan_parquet(path)


def plain_polars(path: Path) -> int:
    """One group_by over all the columns, by the engine that polars takes by itself."""
    return int(_all_columns(path).collect()["len"].sum())


def streaming_polars(path: Path) -> int:
    """The same by the streaming engine."""
    return int(_all_columns(path).collect(engine="streaming")["len"].sum())


def _all_columns(path: Path) -> pl.LazyFrame:
    reward = pl.col("reward")
    aggregates = [
        pl.len(),
        reward.mean().alias("mean"),
        reward.var().alias("var"),
        pl.col("prompt").n_unique(),
        pl.col("response").n_unique(),
    ]
    return _scanned(path).group_by("step", "group_id").agg(aggregates)


def narrow_polars(path: Path) -> int:
    """One group_by over ids and rewards."""
    reward = pl.col("reward")
    aggregates = [pl.len(), reward.mean().alias("mean"), reward.var().alias("var")]
    grouped = _scanned(path).group_by("step", "group_id").agg(aggregates)
    return int(grouped.collect(engine="streaming")["len"].sum())


CONTENDERS: dict[str, Callable[[Path], int]] = {
    "validate": validate,
    "plain polars": plain_polars,
    "streaming polars": streaming_polars,
    "narrow polars": narrow_polars,
}


def measured(name: str, path: Path) -> dict[str, float]:
    """Of one contender: rows, seconds without the start of Python, seconds of all cores together
    with it, and peak resident bytes."""
    command = [sys.executable, __file__, "--contender", name, "--file", str(path)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(run.stdout)
    return result


def contend(name: str, path: Path) -> None:
    """Run one contender in this process and print what it took."""
    started = time.perf_counter()
    rows = CONTENDERS[name](path)
    seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Kilobytes on Linux, bytes on macOS.
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    cpu = used.ru_utime + used.ru_stime
    sys.stdout.write(json.dumps({"rows": rows, "seconds": seconds, "cpu": cpu, "peak_bytes": peak}))


def compare(path: Path, repeat: int) -> dict[str, dict[str, float]]:
    """The best of some runs of every contender, which take turns as a machine's load changes."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(repeat):
        for name in CONTENDERS:
            run = measured(name, path)
            if name not in best or run["seconds"] < best[name]["seconds"]:
                best[name] = run
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--wide", action="store_true", help="responses of about 2 kB")
    parser.add_argument("--jsonl", action="store_true", help="JSON lines instead of Parquet")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--file", type=Path, help="a dump that is there already")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        contend(given.contender, given.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = given.file or write(Path(folder), given.rows, wide=given.wide, jsonl=given.jsonl)
        sys.stdout.write(f"{path.name}: {path.stat().st_size / 1e6:,.0f} MB\n")
        best = compare(path, given.repeat)
    ours = best["validate"]
    for name, run in best.items():
        sys.stdout.write(
            f"{name:16s} {run['seconds']:6.2f} s {run['rows'] / run['seconds']:11,.0f} rows/s"
            f" {run['peak_bytes'] / 1e9:5.2f} GB; validate takes"
            f" {ours['seconds'] / run['seconds']:.2f} x the time, {ours['cpu'] / run['cpu']:.2f} x"
            " the processors'\n"
        )


if __name__ == "__main__":
    main()
