"""Fixtures of all tests: the sample runs, and analyses of them that are needed twice."""

import functools
import os
from pathlib import Path

import pytest
from browsing import browser

from ragen_diag.pipeline import analyze
from ragen_diag.report.product import Product

ROOT = Path(__file__).parent.parent
collect_ignore = ["benchmarks/scoring"]
"""The benchmark needs packages of its own, so its modules are not searched for doctests."""

__all__ = ["browser"]

SAMPLE_RUNS = ROOT / "sample_runs"

# The models are tiny: more threads than one only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def sample_steps(run: str) -> list[int]:
    """The steps of a sample run that have a checkpoint, in order."""
    return sorted(
        int(folder.name.removeprefix("step_"))
        for folder in (SAMPLE_RUNS / run / "checkpoints").iterdir()
    )


def sample_dump(run: str, step: int) -> Path:
    """The rollouts of one step of a sample run."""
    return SAMPLE_RUNS / run / "rollouts" / f"step_{step:05d}.parquet"


@functools.cache
def analyzed(run: str, step: int) -> Product:
    """One step of a sample run under its own checkpoint, computed once per test session."""
    return analyze(sample_dump(run, step), f"step_{step:05d}")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user's shell may hold must not change a test."""
    for name in ("CI", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "GITHUB_ACTIONS", "RAGEN_DIAG_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def written_stories(tmp_path_factory) -> Path:
    """The files of every post-mortem of `stories`."""
    from stories import write_all

    return write_all(tmp_path_factory.mktemp("stories"))
