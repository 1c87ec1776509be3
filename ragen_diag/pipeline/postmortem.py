"""The whole flow of a post-mortem: run folder -> a result per step -> timeline -> story.

The one place that knows every stage of it. Whatever was scored before is not scored again.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from ragen_diag.dumps import read_dump
from ragen_diag.dumps.files import is_remote
from ragen_diag.errors import DumpError
from ragen_diag.history import History, coverage, read_history
from ragen_diag.pipeline import account
from ragen_diag.pipeline.run.details import step_details
from ragen_diag.pipeline.run.layout import Assigned, assign_scorers, rollouts_of
from ragen_diag.pipeline.run.opened import Opened
from ragen_diag.pipeline.run.store import Store
from ragen_diag.pipeline.run.texts import changed_texts, token_view
from ragen_diag.pipeline.run.walk import RunObserver, Walked, walk
from ragen_diag.pipeline.stages import scoped
from ragen_diag.postmortem.diagnosis import diagnose, earliest_alarm
from ragen_diag.postmortem.model import Coverage, PostMortem, RunInputs, Texts, TokenRecord
from ragen_diag.report.story import Story
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import RunSettings, Settings
from ragen_diag.timeline import Timeline

STEPS = "steps"
"""Folder in the out folder with what is kept of every step."""


def postmortem(
    run: str | Path,
    out_dir: Path,
    *,
    settings: Settings,
    run_settings: RunSettings,
    observer: RunObserver,
) -> Story:
    """Tell the story of one run; `out_dir` keeps a result per step.

    `run` is a run folder, or the folder or file of its rollouts. Checkpoints are looked for near
    the rollouts; steps without one are measured without a model, and say so.

    Raises:
        RagenDiagError: any input that cannot be read or used; the message names the next step.
    """
    started = time.monotonic()
    where = rollouts_of(run)
    histories = [read_history(Path(path)) for path in run_settings.history]
    rollouts = read_dump([where], reading=settings.reading)
    steps = _steps(rollouts, run_settings.every)
    observer.note(
        f"{rollouts.dialect} dump {where}: {rollouts.table.height:,} responses of"
        f" {len(rollouts.steps)} steps"
    )
    beside = [] if is_remote(where) else [Path(where), Path(run)]
    assigned = assign_scorers(steps, run_settings.scorer, beside)
    observer.note(_scorers(assigned))
    opened = Opened(settings)
    walked = walk(rollouts, assigned, settings, Store(out_dir / STEPS), opened, observer)
    timeline = Timeline(
        points=walked.points,
        resumes=_resumes(rollouts, histories),
        history=_scalars(histories),
    )
    told = diagnose(
        timeline,
        run_settings,
        seed=settings.seed,
        inputs=_inputs(str(run), rollouts, walked, histories, settings, run_settings),
    )
    texts = _texts(told, walked)
    if run_settings.tokens:
        texts = _with_tokens(texts, rollouts, assigned, walked, opened, settings)
    record = {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 3),
    }
    told = told.model_copy(update={"texts": texts, "run": record})
    return Story(
        postmortem=told,
        timeline=timeline,
        details=step_details(walked, _key_steps(told)),
    )


def _steps(rollouts: Rollouts, every: int) -> list[int]:
    """Every so many of the steps, the first and the last always."""
    steps = [step for step in rollouts.steps if step is not None]
    if len(steps) != len(rollouts.steps):
        raise DumpError(
            f"{rollouts.paths[0]}: rows without a step, so there is no order to tell of; name the"
            " column of the step with --map step=COLUMN, or use `ragen-diag analyze`"
        )
    return sorted({*steps[::every], steps[-1]})


def _scorers(assigned: Sequence[Assigned]) -> str:
    scored = [one for one in assigned if one.located is not None]
    own = sum(one.lag == 0 for one in scored)
    models = len({one.located.path or one.located.hub_id for one in scored if one.located})
    return (
        f"{len(scored)} of {len(assigned)} steps have a scorer, {own} of them their own checkpoint;"
        f" {models} checkpoints"
    )


def _resumes(rollouts: Rollouts, histories: Sequence[History]) -> tuple[int, ...]:
    """Steps at which the run began again: the first of each stretch that was written twice, and
    where a log goes back."""
    steps = [step for step in rollouts.steps if step is not None]
    again = set(rollouts.written_again)
    starts = {
        step
        for place, step in enumerate(steps)
        if step in again and (place == 0 or steps[place - 1] not in again)
    }
    logged = {step for history in histories for step in history.restarts}
    return tuple(sorted(starts | logged))


def _scalars(histories: Sequence[History]) -> pl.DataFrame:
    """All logs as one, the first that has a name at a step."""
    schema = {"step": pl.Int64, "name": pl.String, "value": pl.Float64}
    frames = [history.frame.select(*schema) for history in histories]
    if not frames:
        return pl.DataFrame(schema=schema)
    return pl.concat(frames).unique(["step", "name"], keep="first", maintain_order=True)


def _inputs(
    run: str,
    rollouts: Rollouts,
    walked: Walked,
    histories: Sequence[History],
    settings: Settings,
    run_settings: RunSettings,
) -> RunInputs:
    scored = [p.result.inputs.checkpoint for p in walked.points]
    distinct = {one.fingerprint: one for one in reversed(scored) if one is not None}
    steps = [point.step for point in walked.points]
    return RunInputs(
        run=run,
        dump=account.dump_input(rollouts).model_copy(update={"step": None}),
        scorer=str(run_settings.scorer),
        checkpoints=tuple(reversed(distinct.values())),
        history=tuple(_coverage(history, steps) for history in histories),
        settings={**settings.as_json(), **run_settings.as_json()},
    )


def _coverage(history: History, steps: Sequence[int]) -> Coverage:
    met = coverage(history, steps)
    return Coverage(
        path=", ".join(map(str, history.paths)),
        kind=history.kind,
        names=history.frame["name"].n_unique(),
        matched=len(met.matched),
        only_in_log=len(met.only_in_log),
        only_in_rollouts=met.only_in_run,
        restarts=history.restarts,
        left_out=history.left_out,
    )


def _texts(told: PostMortem, walked: Walked) -> tuple[Texts, ...]:
    """Before the earliest alarm against its first bad step, and against the end of the run."""
    onset = earliest_alarm(told.onsets)
    steps = [point.step for point in walked.points]
    before = steps[0] if onset is None or onset.last_good is None else onset.last_good
    pairs: dict[tuple[int, int], str] = {}
    if onset is not None and onset.first_bad is not None:
        pairs[before, onset.first_bad] = f"the last good and the first bad step of {onset.metric}"
        if onset.ends is not None:
            pairs.setdefault(
                (before, onset.ends), f"before, and where {onset.metric} reached its new level"
            )
    pairs.setdefault((before, steps[-1]), "before, and the end of the run")
    near = {pair: why for pair, why in pairs.items() if pair[0] < pair[1] and set(pair) <= {*steps}}
    return tuple(
        changed_texts(walked.kept(one), walked.kept(other), (one, other), why)
        for (one, other), why in near.items()
    )


def _with_tokens(
    texts: Sequence[Texts],
    rollouts: Rollouts,
    assigned: Sequence[Assigned],
    walked: Walked,
    opened: Opened,
    settings: Settings,
) -> tuple[Texts, ...]:
    """With some responses of both steps token by token, where they have a scorer."""
    located = {one.step: one.located for one in assigned}
    seen = []
    for one in texts:
        tokens: list[TokenRecord] = []
        for step, side in ((one.step_before, "before"), (one.step_after, "after")):
            scorer = located[step]
            names = [sample.response_id for pair in one.pairs for sample in getattr(pair, side)]
            if scorer is None or not names:
                continue
            tokens += token_view(
                scoped(rollouts, step, settings),
                step,
                names,
                opened.of(scorer),
                walked.choice,
                settings,
            )
        seen.append(one.model_copy(update={"tokens": tuple(tokens)}))
    return tuple(seen)


def _key_steps(told: PostMortem) -> Mapping[int, str]:
    """Steps worth looking into, and why."""
    steps = [summary.step for summary in told.steps]
    why: dict[int, list[str]] = {steps[0]: ["first step"]}
    for onset in told.onsets:
        if onset.happened and onset.alarm:
            if onset.last_good is not None:
                why.setdefault(onset.last_good, []).append(f"last good step of {onset.metric}")
            if onset.first_bad is not None:
                why.setdefault(onset.first_bad, []).append(f"first bad step of {onset.metric}")
    why.setdefault(steps[-1], []).append("last step")
    return {step: "; ".join(reasons) for step, reasons in sorted(why.items()) if step in steps}
