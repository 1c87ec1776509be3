"""`ragen-diag validate`: what is in a dump and whether it is usable, before anything is loaded."""

import sys
import time
from typing import Annotated

import typer

from ragen_diag.cli import reading
from ragen_diag.cli.streams import data_on_stdout, write_json
from ragen_diag.settings import Reading

_SECONDS_BETWEEN_LINES = 10.0
NOT_USABLE = 2


def validate(
    dump: reading.DumpArgument,
    ckpt: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint to check as well: a folder, or a bare name such as step_400 that is"
            " looked up beside the dump. Its files are inspected and never loaded.",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Folder with a tokenizer.json to count tokens with; default: the checkpoint's.",
            show_default=False,
        ),
    ] = None,
    base_model: reading.BaseModelOption = None,
    reward: reading.RewardOption = None,
    dialect: reading.DialectOption = None,
    names: reading.MapOption = None,
    reward_key: reading.RewardKeyOption = None,
    reward_reduce: reading.RewardReduceOption = None,
    split: reading.SplitOption = None,
    on_duplicate_step: reading.DuplicateStepOption = None,
    max_bad_rows: reading.MaxBadOption = reading.MAX_BAD,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document with all facts.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Look a dump over, and a checkpoint: what is there, is it usable. No model is loaded.

    Exit code 0: usable, maybe with warnings; 2: an analysis would refuse it.

    Examples:

    ragen-diag validate rollouts/ --ckpt step_400

    ragen-diag validate rollouts/400.jsonl --json
    """
    how = reading.make_reading(
        rewards=reward,
        dialect=dialect,
        names=names,
        reward_key=reward_key,
        reward_reduce=reward_reduce,
        split=split,
        on_duplicate_step=on_duplicate_step,
        max_bad_rows=max_bad_rows,
    )
    if not _run(dump, how, ckpt, tokenizer, base_model, json=json, quiet=quiet):
        raise typer.Exit(NOT_USABLE)


def _run(
    dump: list[str],
    how: Reading,
    ckpt: str | None,
    tokenizer: str | None,
    base_model: str | None,
    *,
    json: bool,
    quiet: bool,
) -> bool:
    # Imported here so that --help and --version need no tables.
    from ragen_diag.report.survey import print_survey
    from ragen_diag.survey import survey

    found = survey(
        dump,
        how,
        ckpt=ckpt,
        tokenizer=tokenizer,
        base_model=base_model,
        observer=_Progress(quiet=quiet),
    )
    with data_on_stdout():
        if json:
            write_json(found.to_json())
        else:
            print_survey(found)
    return found.usable


class _Progress:
    """A line on standard error every ten seconds of reading."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._last = time.monotonic()

    def read(self, rows: int, file: int, files: int) -> None:
        """`rows` so far; `file` of `files` is being read."""
        now = time.monotonic()
        if not self._quiet and now - self._last >= _SECONDS_BETWEEN_LINES:
            sys.stderr.write(f"read {rows:,} rows, file {file:,} of {files:,}\n")
            self._last = now
