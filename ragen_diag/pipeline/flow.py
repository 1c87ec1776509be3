"""The whole flow of one analysis: dump and checkpoint found and opened, then measured as one step.

torch is imported only when there is a checkpoint to load.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragen_diag.checkpoints.layouts import inspect
from ragen_diag.checkpoints.locate import Located, locate
from ragen_diag.dumps import read_dump
from ragen_diag.dumps.files import is_remote
from ragen_diag.errors import UsageError
from ragen_diag.pipeline import account
from ragen_diag.pipeline.observer import Observer, Silent
from ragen_diag.pipeline.stages import choose_run_tags, measure_step, require_usable, retold, scoped
from ragen_diag.report.product import Product
from ragen_diag.result import Result
from ragen_diag.rollouts import Rollouts, listing
from ragen_diag.settings import Settings

if TYPE_CHECKING:
    from ragen_diag.checkpoints.load import Checkpoint


def analyze(
    dumps: str | Path | Sequence[str | Path],
    ckpt: str | None = None,
    *,
    settings: Settings | None = None,
    baseline: Result | None = None,
    observer: Observer | None = None,
) -> Product:
    """Analyse one step of a dump, with its checkpoint if there is one.

    `dumps` are files or folders; `ckpt` is a folder, a bare name looked up beside the dump, or a
    Hub id. Without it, what needs no model is measured and the regime is "not_judged". `baseline`
    is an earlier result: thresholds become relative to it.

    Raises:
        RagenDiagError: any input that cannot be read or used; the message names the next step.
    """
    started = time.monotonic()
    settings, observer = settings or Settings(), observer or Silent()
    paths = [dumps] if isinstance(dumps, str | Path) else list(dumps)
    beside = [Path(path) for path in paths if not is_remote(path)]
    located = None if ckpt is None else locate(ckpt, beside)
    if located is not None:
        look_at(located, settings)
    run = read_dump(paths, reading=settings.reading)
    number = _choose_step(run, settings.step, located)
    rollouts = scoped(run, number, settings)
    require_usable(rollouts, scored=located is not None)
    of_step = "" if number is None else f" of step {number}"
    observer.note(f"{rollouts.dialect} dump: {rollouts.table.height} responses{of_step}")
    checkpoint = opened = None
    if located is not None:
        checkpoint = open_located(located, settings, observer)
        opened = account.checkpoint_input(checkpoint)
        rollouts = retold(rollouts, checkpoint)
    observer.inputs(account.dump_input(rollouts), opened)
    choice = choose_run_tags(run, rollouts, settings, baseline)
    return measure_step(
        rollouts, choice, checkpoint, settings, baseline, observer=observer, started=started
    )


def _choose_step(rollouts: Rollouts, wanted: int | None, located: Located | None) -> int | None:
    """The step asked for, else the only one, else the checkpoint's."""
    steps = rollouts.steps
    if wanted is not None:
        return wanted
    if len(steps) == 1:
        return steps[0]
    if located is not None and located.step in steps:
        return located.step
    raise UsageError(
        f"{rollouts.paths[0]}: {len(steps)} steps ({listing(steps)}); choose one with --step"
    )


def look_at(located: Located, settings: Settings) -> None:
    """Refuse a checkpoint that cannot be loaded: in milliseconds, before a dump is read that may
    take minutes."""
    if located.path is not None:
        inspect(located.path, tokenizer=settings.tokenizer, base_model=settings.base_model)


def open_located(located: Located, settings: Settings, observer: Observer) -> "Checkpoint":
    """Load model and tokenizer, and tell which and how."""
    from ragen_diag.checkpoints.load import open_checkpoint

    checkpoint = open_checkpoint(
        located,
        dtype=settings.dtype,
        device=settings.device,
        revision=settings.revision,
        tokenizer=settings.tokenizer,
        base_model=settings.base_model,
    )
    observer.note(f"checkpoint: {located.how}")
    observer.note(f"{checkpoint.dtype} on {checkpoint.device} ({checkpoint.reason})")
    for note in checkpoint.notes:
        observer.note(note)
    return checkpoint
