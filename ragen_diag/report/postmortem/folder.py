"""The out folder of a post-mortem, and of a sweep: always the same names, never half of them.

Comes in: a `Story` or `SweepStory`. Goes out: `postmortem.html`, `summary.md`, `timeline.parquet`,
`figures/` and `postmortem.json`, which is moved last; `sweep.*` for a sweep. What is kept of every
step lies in `steps/` beside them and is not touched here.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ragen_diag.errors import UsageError
from ragen_diag.report.drawn import FORMATS, Drawn
from ragen_diag.report.folder import without_backend
from ragen_diag.report.postmortem.markdown import render_story, render_sweep
from ragen_diag.report.postmortem.page import render_story_page, render_sweep_page
from ragen_diag.report.story import Story, SweepStory
from ragen_diag.report.whole import REMEDY, present_of, write_text, write_whole

if TYPE_CHECKING:
    from ragen_diag.report.plots.drawing import Plot

FIGURES = ("timeline", "series", "trajectory")
FILES = (
    "postmortem.html",
    "summary.md",
    "timeline.parquet",
    *(f"figures/{name}.{fmt}" for name in FIGURES for fmt in FORMATS),
    "postmortem.json",
)
PLANES = ("plane_retrieval_skill", "plane_policy_entropy")
SWEEP_FILES = (
    "sweep.html",
    "summary.md",
    *(f"figures/{name}.{fmt}" for name in PLANES for fmt in FORMATS),
    "sweep.json",
)


def check_postmortem_folder(folder: Path, run: str, *, force: bool) -> None:
    """Refuse, before anything expensive, to replace the post-mortem of another run.

    A folder that only holds kept steps is one that goes on.

    Raises:
        UsageError: the folder holds something else and `force` is not given, or is none.
    """
    present = present_of(folder, FILES)
    if force or not present:
        return
    if "postmortem.json" not in present:
        raise UsageError(f"{folder}: holds {present[0]} but no postmortem.json; {REMEDY}")
    try:
        old = json.loads((folder / "postmortem.json").read_text(encoding="utf-8"))
        known = str(old["inputs"]["run"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder}: postmortem.json is no post-mortem; {REMEDY}") from error
    if Path(known).absolute() != Path(run).absolute():
        raise UsageError(f"{folder}: holds the post-mortem of another run, {known}; {REMEDY}")


def write_postmortem(
    story: Story, folder: Path, *, force: bool = False, plot_format: str = "svg"
) -> list[Path]:
    """Write all files of one post-mortem and return their paths.

    Raises:
        UsageError: as `check_postmortem_folder`, or the folder cannot be written.
    """
    check_postmortem_folder(folder, story.postmortem.inputs.run, force=force)

    def render(drafts: Path) -> None:
        drawn = _Drawing(drafts, plot_format)
        timeline = drawn.one("timeline", lambda f: f.draw_timeline(story), keep=True)
        drawn.one("series", lambda f: f.draw_grid(story), keep=True)
        trajectory = drawn.one("trajectory", lambda f: f.draw_trajectory(story), keep=True)
        series = drawn.several("series", lambda f: f.draw_series(story), keep=False)
        page = render_story_page(story, timeline, series, trajectory)
        write_text(drafts / "postmortem.html", page)
        write_text(drafts / "summary.md", render_story(story))
        story.timeline.frame().write_parquet(drafts / "timeline.parquet")
        write_text(drafts / "postmortem.json", story.postmortem.to_json())

    return write_whole(folder, FILES, render)


def write_sweep(
    story: SweepStory, folder: Path, *, force: bool = False, plot_format: str = "svg"
) -> list[Path]:
    """Write all files of one sweep and return their paths.

    Raises:
        UsageError: the folder holds files of these names that are no sweep's and `force` is not
            given, or cannot be written.
    """
    present = present_of(folder, SWEEP_FILES)
    if present and "sweep.json" not in present and not force:
        raise UsageError(f"{folder}: holds {present[0]} but no sweep.json; {REMEDY}")

    def render(drafts: Path) -> None:
        drawn = _Drawing(drafts, plot_format)
        planes = drawn.several("plane", lambda f: f.draw_planes(story), keep=True)
        write_text(drafts / "sweep.html", render_sweep_page(story, planes))
        write_text(drafts / "summary.md", render_sweep(story))
        write_text(drafts / "sweep.json", story.sweep.to_json())

    return write_whole(folder, SWEEP_FILES, render)


class _Drawing:
    """Draws figures and writes the files of those to keep; without matplotlib each says so."""

    def __init__(self, folder: Path, plot_format: str) -> None:
        self._folder, self._format = folder / "figures", plot_format
        self._there = find_spec("matplotlib") is not None
        self._folder.mkdir()

    def one(self, name: str, draw: Callable[[ModuleType], "Plot"], *, keep: bool) -> Drawn:
        return self.several(name, lambda figures: [draw(figures)], keep=keep)[0]

    def several(
        self, name: str, draw: Callable[[ModuleType], Sequence["Plot"]], *, keep: bool
    ) -> list[Drawn]:
        if not self._there:
            why = "Not drawn: matplotlib is not installed."
            return [Drawn(name=name, title=name.capitalize(), caption=why)]
        with without_backend():
            from ragen_diag.report.plots import finish
            from ragen_diag.report.postmortem import figures

            drawn = [finish(plot, self._format) for plot in draw(figures)]
        for plot in drawn:
            if keep and plot.file is not None:
                (self._folder / f"{plot.name}.{self._format}").write_bytes(plot.file)
        return [replace(plot, file=None) for plot in drawn]
