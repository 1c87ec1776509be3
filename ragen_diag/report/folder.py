"""The out folder of an analysis: always the same names, and never half of them.

Comes in: a `Product`. Goes out: `result.json`, `report.html`, `summary.md`, `prompts.parquet`,
`responses.parquet`, `scores.parquet` and `plots/`. Everything is rendered into a temporary folder
beside the target and moved file by file at the end, `result.json` last.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePath

from ragen_diag.errors import ResultError, UsageError
from ragen_diag.report import facts
from ragen_diag.report.drawn import FORMATS, NAMES, Drawn
from ragen_diag.report.html import render_html
from ragen_diag.report.markdown import render_markdown
from ragen_diag.report.product import Product
from ragen_diag.report.whole import REMEDY, present_of, write_text, write_whole
from ragen_diag.result import CheckpointInput, DumpInput, read_result
from ragen_diag.scoring.journal import discard
from ragen_diag.scoring.scores import write_scores

FILES = (
    "report.html",
    "summary.md",
    "prompts.parquet",
    "responses.parquet",
    "scores.parquet",
    *(f"plots/{name}.{fmt}" for name in NAMES for fmt in FORMATS),
    "result.json",
)
"""Every name that this package may write in an out folder, in the order of moving."""

UNFINISHED = "unfinished"
"""Folder in an out folder for what a stopped run had done; gone once the results are there."""

_STEP = re.compile(r"(.*step|completions?|rollouts?)?[_-]?\d+", re.IGNORECASE)


def default_folder(dump: DumpInput, checkpoint: CheckpointInput | None) -> Path:
    """`ragen-diag-out/RUN/CHECKPOINT`, from the names of the dump and the checkpoint.

    RUN is the dump's file name, or where that only tells a step, the nearest folder above it with
    a name of its own. Without a checkpoint the last part is the step.
    """
    step = "unscored" if dump.step is None else f"step_{dump.step:05d}"
    last = step if checkpoint is None else PurePath(facts.named_part(checkpoint.path)).name
    return Path("ragen-diag-out") / _run_name(dump.paths) / _plain(last)


def _run_name(paths: Sequence[str]) -> str:
    path = PurePath(paths[0]) if paths else PurePath("run")
    own = path.stem.lower() not in facts.COMMON_FOLDERS and not _STEP.fullmatch(path.stem)
    if len(paths) == 1 and own:
        return _plain(path.stem)
    for part in reversed(path.parent.parts):
        if part.lower() not in facts.COMMON_FOLDERS and _plain(part) != "run":
            return _plain(part)
    return _plain(path.stem)


def _plain(name: str) -> str:
    """A folder name without characters that shells, file systems or terminals trip over."""
    return re.sub(r"[^\w.=-]+", "_", name, flags=re.ASCII).strip("._")[:80] or "run"


def write_folder(
    product: Product, out_dir: Path, *, force: bool = False, plot_format: str = "svg"
) -> list[Path]:
    """Write all files of one analysis and return their paths.

    Files of ours that this product does not have (scores without a checkpoint, plots of another
    format) are removed; files of others are left alone. If rendering fails nothing is left behind.

    Raises:
        UsageError: the folder holds results of other inputs and `force` is not given, or is none.
    """
    out_dir = Path(out_dir)
    inputs = product.result.inputs
    check_folder(out_dir, inputs.dump, inputs.checkpoint, force=force)
    return write_whole(
        out_dir,
        FILES,
        lambda drafts: _render(product, drafts, plot_format),
        after=lambda: discard(out_dir / UNFINISHED),
    )


def check_folder(
    out_dir: Path, dump: DumpInput, checkpoint: CheckpointInput | None, *, force: bool
) -> None:
    """Refuse, before anything expensive, to replace the results of other inputs.

    Inputs are the same when the dump's bytes, the step and the checkpoint are; settings may
    differ, and the new results then replace the old.

    Raises:
        UsageError: the folder holds results of other inputs and `force` is not given, or is none.
    """
    present = present_of(out_dir, FILES)
    if force or not present:
        return
    if "result.json" not in present:
        raise UsageError(f"{out_dir}: holds {present[0]} but no result.json; {REMEDY}")
    try:
        old = read_result(out_dir / "result.json").inputs
    except ResultError as error:
        raise UsageError(f"{error}; {REMEDY}") from error
    if _identity(old.dump, old.checkpoint) != _identity(dump, checkpoint):
        raise UsageError(f"{out_dir}: holds results of other inputs; {REMEDY}")


def _identity(
    dump: DumpInput, checkpoint: CheckpointInput | None
) -> tuple[str | None, int | None, str | None]:
    return dump.sha256, dump.step, None if checkpoint is None else checkpoint.fingerprint


def _render(product: Product, folder: Path, plot_format: str) -> None:
    plots = _plots(product, folder, plot_format)
    write_text(folder / "report.html", render_html(product, plots))
    write_text(folder / "summary.md", render_markdown(product.result))
    product.prompts.write_parquet(folder / "prompts.parquet")
    product.responses.write_parquet(folder / "responses.parquet")
    if product.scores is not None:
        write_scores(product.scores, folder / "scores.parquet")
    write_text(folder / "result.json", product.result.to_json())


def _plots(product: Product, folder: Path, plot_format: str) -> tuple[Drawn, ...]:
    """Draw the plots and write their files; without matplotlib each says so instead."""
    if find_spec("matplotlib") is None:
        why = "Not drawn: matplotlib is not installed."
        return tuple(Drawn(name=name, title=name.capitalize(), caption=why) for name in NAMES)
    (folder / "plots").mkdir()
    with without_backend():
        from ragen_diag.report.plots import draw_plots

        drawn = draw_plots(product, plot_format)
    for plot in drawn:
        if plot.file is not None:
            (folder / "plots" / f"{plot.name}.{plot_format}").write_bytes(plot.file)
    return drawn


@contextmanager
def without_backend() -> Iterator[None]:
    """No window system is asked for, so whatever backend the environment names must not matter."""
    named = os.environ.pop("MPLBACKEND", None)
    try:
        yield
    finally:
        if named is not None:
            os.environ["MPLBACKEND"] = named
