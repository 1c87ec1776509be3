"""`ragen-diag convert`: a dump of any dialect as one canonical Parquet file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ragen_diag.cli import reading


def convert(
    dump: reading.DumpArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT.parquet", help="File to write.", show_default=False)
    ],
    reward: reading.RewardOption = None,
    dialect: reading.DialectOption = None,
    names: reading.MapOption = None,
    reward_key: reading.RewardKeyOption = None,
    reward_reduce: reading.RewardReduceOption = None,
    split: reading.SplitOption = None,
    on_duplicate_step: reading.DuplicateStepOption = None,
    max_bad_rows: reading.MaxBadOption = reading.MAX_BAD,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No messages.")] = False,
) -> None:
    """Write a dump of any known dialect as one Parquet file with the canonical columns.

    Example:

    ragen-diag convert results.jsonl run.parquet --map response=answer_text
    """
    from ragen_diag.dumps.convert import convert as run
    from ragen_diag.report.safetext import inert, one_line

    choices = reading.make_reading(
        rewards=reward,
        dialect=dialect,
        names=names,
        reward_key=reward_key,
        reward_reduce=reward_reduce,
        split=split,
        on_duplicate_step=on_duplicate_step,
        max_bad_rows=max_bad_rows,
    )
    done = run(dump, out, reading=choices, force=force)
    if quiet:
        return
    notes = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in done.notes.items())
    told = f"{done.path}: {done.rows:,} rows, read as {done.dialect}"
    left_out = f"; {done.left_out:,} rows left out" if done.left_out else ""
    met = f"; repaired or noted: {notes}" if notes else ""
    sys.stderr.write(inert(one_line(f"{told}{left_out}{met}")) + "\n")
