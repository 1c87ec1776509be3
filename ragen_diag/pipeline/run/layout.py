"""A run folder -> where its rollouts are, and which checkpoint scores which step.

Opens no file of rows and loads no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ragen_diag.checkpoints.locate import Located, checkpoints_beside, locate
from ragen_diag.dumps.files import is_remote
from ragen_diag.errors import UsageError
from ragen_diag.settings import ScorerChoice

ROLLOUT_FOLDERS = (
    "rollouts",
    "rollout",
    "rollout_data",
    "rollout_data_dir",
    "rollout_dump",
    "rollout_dumps",
    "completions",
    "generations",
    "dumps",
)
"""Sub-folders of a run in which trainers keep their rollouts; a run with exactly one of them has
its rollouts there, and what lies beside it is something else."""


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """The scorer of one step: a checkpoint, or why there is none."""

    step: int
    located: Located | None
    lag: int | None = None
    reason: str | None = None


def rollouts_of(run: str | Path) -> str | Path:
    """The folder of a run's rollouts: its one sub-folder of a known name, else the run itself."""
    if is_remote(run):
        return run
    folder = Path(run)
    inside = [folder / name for name in ROLLOUT_FOLDERS if (folder / name).is_dir()]
    return inside[0] if len(inside) == 1 else folder


def assign_scorers(
    steps: Sequence[int], choice: ScorerChoice, beside: Sequence[Path]
) -> list[Assigned]:
    """The checkpoint of each step, looked for near the paths of `beside`.

    Without any checkpoint in reach all steps go unscored.

    Raises:
        CheckpointError: a fixed scorer that is nowhere.
        UsageError: none of the checkpoints found is of a step of the rollouts ("own").
    """
    if choice.kind == "fixed":
        located = locate(choice.checkpoint or "", beside)
        return [Assigned(step=step, located=located) for step in steps]
    there = checkpoints_beside(beside)
    if choice.kind == "own" and there and not set(there) & set(steps):
        raise UsageError(
            f"no step of the rollouts has a checkpoint of its own (checkpoints of steps"
            f" {_few(list(there))}, rollouts of {_few(steps)}); use --scorer nearest, or"
            " fixed:CKPT"
        )
    return [_assigned(step, choice, there) for step in steps]


def _assigned(step: int, choice: ScorerChoice, there: Mapping[int, Located]) -> Assigned:
    if not there:
        return Assigned(step=step, located=None, reason="no checkpoint near the rollouts")
    if choice.kind == "own":
        before = [step] if step in there else []
    else:
        before = [known for known in there if known <= step]
    if not before:
        which = "of this step" if choice.kind == "own" else "of this step or before"
        return Assigned(step=step, located=None, reason=f"no checkpoint {which}")
    nearest = max(before)
    located = there[nearest]
    how = located.how if nearest == step else f"{located.how}, the nearest before step {step}"
    return Assigned(step=step, located=replace(located, how=how), lag=step - nearest)


def _few(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps[:5])) + (", ..." if len(steps) > 5 else "")
