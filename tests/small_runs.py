"""A small run folder cut from a sample run: few prompts, few steps, its real checkpoints.

As a program, tells the story of a run folder and prints each step as it is kept, for tests that
kill it.
"""

import shutil
import sys
from pathlib import Path

import polars as pl
from conftest import SAMPLE_RUNS

from ragen_diag.pipeline.observer import Silent
from ragen_diag.pipeline.postmortem import postmortem
from ragen_diag.report.story import Story
from ragen_diag.settings import RunSettings, ScorerChoice, Settings

STEPS = (0, 20, 40, 60, 80, 100, 120)


class Told(Silent):
    """Remembers which steps were measured, and which were taken as kept."""

    def __init__(self) -> None:
        self.measured: list[int] = []
        self.kept: list[int] = []
        self.notes: list[str] = []
        self.scored_any = False

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: int, place: int, steps: int, *, kept: bool) -> None:
        (self.kept if kept else self.measured).append(step)
        sys.stdout.write(f"{step} {'kept' if kept else 'measured'}\n")
        sys.stdout.flush()

    def scored(self, progress: object) -> None:
        self.scored_any = True


def small_run(
    folder: Path, source: str = "low_entropy_collapse", steps=STEPS, prompts: int = 8
) -> Path:
    """A run of some prompts with four responses each."""
    (folder / "rollouts").mkdir(parents=True)
    for step in steps:
        table = pl.read_parquet(SAMPLE_RUNS / source / "rollouts" / f"step_{step:05d}.parquet")
        few = table["prompt"].unique(maintain_order=True)[:prompts]
        rows = table.filter(pl.col("prompt").is_in(few.to_list()))
        rows = rows.filter(pl.int_range(pl.len()).over("prompt") < 4)
        rows.write_parquet(folder / "rollouts" / f"step_{step:05d}.parquet")
    shutil.copytree(SAMPLE_RUNS / source / "checkpoints", folder / "checkpoints")
    return folder


def tell(run: Path, out: Path, observer: Told | None = None, **run_settings) -> Story:
    """The story of a run with few resamples."""
    return postmortem(
        run,
        out,
        settings=Settings(resamples=50),
        run_settings=RunSettings(**run_settings),
        observer=observer or Told(),
    )


def fixed(name: str) -> ScorerChoice:
    return ScorerChoice.parse(f"fixed:{name}")


if __name__ == "__main__":
    tell(Path(sys.argv[1]), Path(sys.argv[2]))
