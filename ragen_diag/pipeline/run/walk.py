"""All steps of a run in order: each taken from the store, or scored, measured and kept.

Comes in: the canonical rows of the whole run and the scorer of each step. Goes out: a point per
step. A step that cannot be scored is measured without a model, and says why.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from ragen_diag.errors import CheckpointError, DumpError, RagenDiagError, ScoringError
from ragen_diag.judging.findings import ARTEFACTS
from ragen_diag.pipeline.flow import look_at
from ragen_diag.pipeline.observer import Silent
from ragen_diag.pipeline.run.layout import Assigned
from ragen_diag.pipeline.run.opened import Fingerprints, Opened, tags_of_run, told
from ragen_diag.pipeline.run.store import Kept, Store, digest, rows_digest
from ragen_diag.pipeline.stages import measure_step, require_usable, retold, scoped
from ragen_diag.pipeline.step import make_step
from ragen_diag.pipeline.tables import response_id
from ragen_diag.report.product import Product
from ragen_diag.result import Result
from ragen_diag.rollouts import Rollouts
from ragen_diag.scoring import Progress
from ragen_diag.settings import Settings
from ragen_diag.snr.topp import keep_top_p
from ragen_diag.spans import SpanStatus, TagChoice
from ragen_diag.timeline.points import Point, Scorer

RHO = 0.9
"""Share of the reward variance that the filter of RAGEN-2 keeps by default."""


class RunObserver(Protocol):
    """Who is told what happens during a walk."""

    def note(self, text: str) -> None:
        """A choice that was made."""

    def step(self, step: int, place: int, steps: int, *, kept: bool) -> None:
        """A step begins, the `place`-th of `steps`; `kept` if it was measured before."""

    def scored(self, progress: Progress) -> None:
        """How far the scoring of this step is."""


@dataclass(frozen=True)
class Walked:
    """All steps, and the way to what is kept of each."""

    points: tuple[Point, ...]
    keys: Mapping[int, str]
    store: Store
    choice: TagChoice

    def kept(self, step: int) -> Kept:
        """The tables and texts of one step."""
        found = self.store.read(step, self.keys[step])
        if found is None:
            raise DumpError(f"what was kept of step {step} is gone; run the same command again")
        return found


class _StepObserver(Silent):
    """The observer of one step's analysis."""

    def __init__(self, run: RunObserver, folder: Path) -> None:
        self._run, self._folder = run, folder

    def unfinished(self) -> Path:
        return self._folder

    def scored(self, progress: Progress) -> None:
        self._run.scored(progress)


def walk(
    run: Rollouts,
    assigned: Sequence[Assigned],
    settings: Settings,
    store: Store,
    opened: Opened,
    observer: RunObserver,
) -> Walked:
    """Measure every step of `assigned`, in its order; at least one.

    Raises:
        RagenDiagError: rows that cannot be used at all, or a folder that cannot be written.
    """
    prints = Fingerprints(store, settings)
    first = assigned[0]
    choice = tags_of_run(
        run, scoped(run, first.step, settings), first.located, prints, store, opened
    )
    baseline: Result | None = None
    baseline_key = ""
    points, keys = [], {}
    for place, one in enumerate(assigned):
        rollouts = scoped(run, one.step, settings)
        require_usable(rollouts, scored=False)
        identity = prints.of(one.located)
        of_step = _settings_of(settings, one)
        key = digest(
            rows_digest(rollouts.table),
            dict(rollouts.notes),
            identity,
            one.lag,
            one.reason,
            of_step.as_json(),
            told(choice),
            baseline_key,
        )
        kept = store.read(one.step, key)
        observer.step(one.step, place, len(assigned), kept=kept is not None)
        if kept is None:
            at = _StepObserver(observer, store.unfinished(one.step))
            product, error = _measure(rollouts, choice, one, of_step, baseline, opened, at)
            kept = _kept(product, rollouts, choice, error or one.reason)
            store.write(one.step, key, product, kept)
        keys[one.step] = key
        point = _point(one, kept)
        points.append(point)
        if baseline is None and _may_be_baseline(point):
            baseline, baseline_key = point.result, key
    return Walked(tuple(points), keys, store, choice)


def _settings_of(settings: Settings, one: Assigned) -> Settings:
    """A checkpoint that is not the policy of the step is a yardstick."""
    return replace(settings, step=one.step, yardstick=one.located is not None and one.lag != 0)


def _measure(
    rollouts: Rollouts,
    choice: TagChoice,
    one: Assigned,
    settings: Settings,
    baseline: Result | None,
    opened: Opened,
    observer: _StepObserver,
) -> tuple[Product, RagenDiagError | None]:
    """The step under its checkpoint, or without one and the error that kept it from scoring."""
    started, unscored = time.monotonic(), None
    if one.located is not None:
        try:
            look_at(one.located, settings)
            require_usable(rollouts, scored=True)
            checkpoint = opened.of(one.located)
            table = retold(rollouts, checkpoint)
            product = measure_step(
                table, choice, checkpoint, settings, baseline, observer=observer, started=started
            )
            return product, None
        except (CheckpointError, DumpError, ScoringError) as error:
            # One step among many: the others still tell, and this one says why it does not.
            unscored = error
    product = measure_step(
        rollouts, choice, None, settings, None, observer=observer, started=started
    )
    return product, unscored


def _may_be_baseline(point: Point) -> bool:
    skill = point.result.metrics.get("retrieval_skill")
    usable = skill is not None and skill.value is not None
    return usable and point.result.regime.label not in ARTEFACTS


def _kept(
    product: Product, rollouts: Rollouts, choice: TagChoice, why: RagenDiagError | str | None
) -> Kept:
    step = make_step(rollouts.table, choice)
    valid = [span.status is SpanStatus.VALID for span in step.spans]
    texts = pl.DataFrame(
        {
            "response_id": [response_id(row) for row in range(rollouts.table.height)],
            "prompt": rollouts.table["prompt"],
            "response": rollouts.table["response"],
            "start": [
                span.start if ok else None for span, ok in zip(step.spans, valid, strict=True)
            ],
            "end": [span.end if ok else None for span, ok in zip(step.spans, valid, strict=True)],
        },
        schema_overrides={"start": pl.Int64, "end": pl.Int64},
    )
    return Kept(
        result=product.result,
        responses=product.responses,
        groups=product.groups,
        texts=texts,
        unscored=None if why is None else str(why),
        numerical=isinstance(why, ScoringError),
    )


def _point(one: Assigned, kept: Kept) -> Point:
    checkpoint = kept.result.inputs.checkpoint
    scorer = None
    if checkpoint is not None:
        scorer = Scorer(path=checkpoint.path, step=checkpoint.step, lag=one.lag)
    return Point(
        step=one.step,
        result=kept.result,
        scorer=scorer,
        unscored=kept.unscored,
        numerical=kept.numerical,
        kept_share=_kept_share(kept.groups),
    )


def _kept_share(groups: pl.DataFrame) -> float | None:
    """Share of the groups with a variance that the filter would keep at rho 0.9."""
    variance_G = groups["reward_var"].drop_nulls().to_numpy()
    return float(np.mean(keep_top_p(variance_G, RHO))) if len(variance_G) else None
