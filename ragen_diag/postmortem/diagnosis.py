"""The timeline of a run -> its post-mortem: onsets, order, signatures, verdict, cost.

Comes in: the timeline, and what was asked for. Goes out: `PostMortem`, still without texts. Knows
no files and no wording.
"""

from collections.abc import Sequence

from ragen_diag.postmortem.case import Case
from ragen_diag.postmortem.model import (
    NOT_JUDGED,
    NOTHING,
    UNEXPLAINED,
    Confidence,
    Cost,
    MarksRecord,
    OnsetRecord,
    PostMortem,
    RunInputs,
    Signature,
    StepSummary,
)
from ragen_diag.postmortem.signatures import SYMPTOMS, find_signatures
from ragen_diag.postmortem.turning import find_correlations, find_leads, find_onsets
from ragen_diag.postmortem.watched import ENTROPY, MI, REWARD, SUCCESS
from ragen_diag.settings import RunSettings
from ragen_diag.timeline import Point, Timeline


def diagnose(
    timeline: Timeline, run_settings: RunSettings, *, seed: int, inputs: RunInputs
) -> PostMortem:
    """Everything that numbers alone tell of a run."""
    onsets = find_onsets(timeline, seed=seed)
    records = tuple(record for _, record in onsets.values())
    signatures = find_signatures(Case(timeline, {key: found[1] for key, found in onsets.items()}))
    verdict, confidence = _verdict(signatures, records)
    marks = timeline.marks
    return PostMortem(
        inputs=inputs,
        verdict=verdict,
        confidence=confidence,
        signatures=signatures,
        onsets=records,
        leads=find_leads(onsets),
        correlations=find_correlations(timeline),
        marks=MarksRecord(
            resumes=marks.resumes, scorer_changes=marks.scorer_changes, gaps=marks.gaps
        ),
        steps=tuple(_summary(point) for point in timeline.points),
        cost=_cost(timeline, records, run_settings),
        texts=(),
        run={},
    )


def earliest_alarm(onsets: Sequence[OnsetRecord]) -> OnsetRecord | None:
    """The alarm with the earliest first bad step; of equals the first watched."""
    alarms = [o for o in onsets if o.alarm and o.happened and o.first_bad is not None]
    return min(alarms, key=lambda onset: onset.first_bad or 0, default=None)


def _verdict(
    signatures: Sequence[Signature], onsets: Sequence[OnsetRecord]
) -> tuple[str, Confidence | None]:
    """The first signature that is more than possible; else whether anything happened at all."""
    alarms = [onset for onset in onsets if onset.alarm and onset.happened]
    for held in signatures:
        if held.confidence != "possible" and (alarms or held.code not in SYMPTOMS):
            return held.code, held.confidence
    if alarms:
        return UNEXPLAINED, None
    judged = [
        onset
        for onset in onsets
        if onset.metric in (MI, ENTROPY, SUCCESS, REWARD) and onset.kind != "too_few"
    ]
    return (NOTHING if judged else NOT_JUDGED), None


def _summary(point: Point) -> StepSummary:
    result, scorer = point.result, point.scorer
    return StepSummary(
        step=point.step,
        regime=result.regime.label,
        candidates=result.regime.candidates,
        scorer_step=None if scorer is None else scorer.step,
        lag=None if scorer is None else scorer.lag,
        rows=result.counts.rows,
        scored_rows=result.counts.scored_rows,
        prompts=result.counts.prompts,
        unscored=point.unscored,
        findings={found.code: found.severity for found in result.findings},
    )


def _cost(
    timeline: Timeline, onsets: Sequence[OnsetRecord], run_settings: RunSettings
) -> Cost | None:
    """What the steps from the first bad one on have cost; None without an alarm or a price."""
    first, minutes = earliest_alarm(onsets), run_settings.step_minutes
    if first is None or first.first_bad is None or minutes is None:
        return None
    steps = timeline.steps[-1] - first.first_bad + 1
    hours = steps * minutes / 60
    price = run_settings.gpu_hour_cost
    return Cost(
        since_step=first.first_bad,
        steps=steps,
        hours=hours,
        money=None if price is None else hours * run_settings.gpus * price,
    )
