"""The timeline -> onsets, lead times and correlations, each by the name of its quantity.

The maths is that of `trends`; here names, thresholds and cautions are added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from ragen_diag.metrics.information import UNITS
from ragen_diag.postmortem.model import CorrelationRecord, LeadRecord, OnsetRecord
from ragen_diag.postmortem.watched import (
    ENTROPY,
    LENGTH,
    LOGGED,
    LOGGED_MATERIAL,
    LOGGED_SOURCE,
    MI,
    MI_SEQ,
    REWARD,
    SUCCESS,
    VALID,
    WATCHED,
    Direction,
    Watched,
)
from ragen_diag.timeline import Timeline
from ragen_diag.timeline.timeline import HISTORY
from ragen_diag.trends.correlation import rank_correlation
from ragen_diag.trends.lead import lead_time
from ragen_diag.trends.onset import ALPHA, Onset, find_onset
from ragen_diag.trends.series import Series

Key = tuple[str, int]

LEADS: tuple[tuple[Key, Key], ...] = tuple(
    ((MI, -1), later)
    for later in (
        (SUCCESS, -1),
        (REWARD, -1),
        (ENTROPY, -1),
        (ENTROPY, 1),
        (VALID, -1),
        (LENGTH, -1),
    )
)
"""Pairs of movements whose order matters: does the loss of input-dependence come first?"""

PAPER: Mapping[str, str] = {
    "mi_zscore": "+0.39",
    "mi_seq_estimate": "+0.22",
    "mi_zscore_seq": "+0.09",
    "mi_estimate": "-0.00",
    "conditional_entropy_est": "-0.14 to -0.11",
    "reasoning_entropy_est": "-0.14 to -0.11",
}
"""RAGEN-2 (arXiv 2604.06268), Fig. 8: Spearman of a metric with success, across runs."""

CORRELATED = (
    *PAPER,
    MI,
    "mi_zscore_ema",
    ENTROPY,
    VALID,
    LENGTH,
    "in_group_reward_std",
)


ONCE_TURNED = 0.05
"""Level of a movement once an alarm has been raised at the stricter one: it is no longer asked
whether the run turned, but what else did, and when."""


def find_onsets(timeline: Timeline, *, seed: int) -> dict[Key, tuple[Onset, OnsetRecord]]:
    """The onset of every watched movement that the run has numbers for.

    Alarms are raised at the level of `trends.onset`. Where there is one, what moved too little to
    be told from noise by itself is dated at `ONCE_TURNED`, and its record says so.
    """
    watched = (*_present(timeline), *_logged(timeline))
    found = {one: _find(one, timeline, seed, ALPHA) for one in watched}
    if any(one.alarm and record.happened for one, (_, record) in found.items()):
        for one, (_, record) in found.items():
            if record.kind == "none":
                found[one] = _find(one, timeline, seed, ONCE_TURNED)
    return {(one.name, one.direction): both for one, both in found.items()}


def _find(
    watched: Watched, timeline: Timeline, seed: int, alpha: float
) -> tuple[Onset, OnsetRecord]:
    series = _measured(watched.name, timeline)
    onset = find_onset(
        series, direction=watched.direction, material=watched.material, seed=seed, alpha=alpha
    )
    return onset, _record(onset, watched, timeline, int(np.isfinite(series.value_S).sum()))


def _measured(name: str, timeline: Timeline) -> Series:
    """Without the steps at which nobody looked: an undefined value tells of the run only where the
    model's numbers failed, or where a reward should be."""
    series = timeline.series(name)
    if name.startswith(HISTORY) or name in (REWARD, SUCCESS):
        return series
    failed_S = np.array([point.numerical for point in timeline.points])
    return series.take(np.isfinite(series.value_S) | failed_S)


def _present(timeline: Timeline) -> list[Watched]:
    def has_values(name: str) -> bool:
        return any(metric.value is not None for metric in timeline.metrics.get(name, ()))

    return [watched for watched in WATCHED if has_values(watched.name)]


def _logged(timeline: Timeline) -> list[Watched]:
    watched = []
    for name in timeline.logged:
        plain = name.removeprefix(HISTORY).lower()
        direction: Direction = 0
        alarm = False
        for parts, known, alone in LOGGED:
            if any(part in plain for part in parts):
                direction, alarm = known, alone
                break
        watched.append(
            Watched(
                name=name,
                direction=direction,
                material=LOGGED_MATERIAL,
                alarm=alarm,
                source=LOGGED_SOURCE,
            )
        )
    return watched


def _record(onset: Onset, watched: Watched, timeline: Timeline, defined: int) -> OnsetRecord:
    units = [metric.unit for metric in timeline.metrics.get(watched.name, ()) if metric.unit]
    return OnsetRecord(
        metric=watched.name,
        direction=watched.direction,
        alarm=watched.alarm,
        kind=onset.kind,
        last_good=onset.last_good,
        first_bad=onset.first_bad,
        ends=onset.ends,
        before=onset.before,
        after=onset.after,
        unit=units[0] if units else "",
        p_value=onset.p_value,
        odd_steps=onset.odd_steps,
        material={name: value for name, value in asdict(watched.material).items() if value},
        source=watched.source,
        steps=defined,
        reason=onset.reason or _why_lost(onset, watched.name, timeline),
        caution=_caution(onset, watched.name, timeline),
    )


def _why_lost(onset: Onset, name: str, timeline: Timeline) -> str | None:
    if onset.kind != "lost":
        return None
    metrics = dict(zip(timeline.steps, timeline.metrics.get(name, ()), strict=False))
    found = metrics.get(onset.first_bad or -1)
    return None if found is None else found.reason


def _caution(onset: Onset, name: str, timeline: Timeline) -> str | None:
    """What speaks for less than an onset: weak evidence, or what else happened there."""
    if onset.first_bad is None:
        return None
    earliest = onset.first_bad - 1 if onset.last_good is None else onset.last_good

    def within(steps: Sequence[int]) -> list[int]:
        return [step for step in steps if earliest < step <= (onset.first_bad or 0)]

    said = []
    if onset.p_value is not None and onset.p_value >= ALPHA:
        said.append(f"by itself no more than likely (p = {onset.p_value:.2g})")
    said += [f"the run was resumed at step {step}" for step in within(timeline.marks.resumes)]
    if name in UNITS:
        said += [
            f"another checkpoint scores from step {step} on"
            for step in within(timeline.marks.scorer_changes)
        ]
    said += [
        f"nothing is known between steps {low} and {high}"
        for low, high in timeline.marks.gaps
        if low < onset.first_bad and high > earliest
    ]
    return "; ".join(said) or None


def find_leads(onsets: Mapping[Key, tuple[Onset, OnsetRecord]]) -> tuple[LeadRecord, ...]:
    """How long before each other the onsets came; only of pairs that both happened."""
    leads = []
    for first, second in LEADS:
        if first not in onsets or second not in onsets:
            continue
        one, other = onsets[first], onsets[second]
        if not (one[1].happened and other[1].happened):
            continue
        lead = lead_time(one[0], other[0])
        leads.append(
            LeadRecord(
                first=first[0],
                second=second[0],
                steps=lead.steps,
                low=lead.low,
                high=lead.high,
                probability=lead.probability,
            )
        )
    return tuple(leads)


def find_correlations(timeline: Timeline) -> tuple[CorrelationRecord, ...]:
    """Every metric with success over steps (with reward where success is unknown), and the format
    with MI, which the paper finds unrelated."""
    metrics = timeline.metrics
    known = any(metric.value is not None for metric in metrics.get(SUCCESS, ()))
    outcome = SUCCESS if known else REWARD
    pairs = [(name, outcome, PAPER.get(name)) for name in CORRELATED]
    pairs += [(VALID, name, "unrelated") for name in (MI, MI_SEQ)]
    return tuple(
        _correlation(timeline, name, other, paper)
        for name, other, paper in pairs
        if name in metrics and other in metrics
    )


def _correlation(timeline: Timeline, name: str, other: str, paper: str | None) -> CorrelationRecord:
    one, two = timeline.series(name), timeline.series(other)
    found = rank_correlation(one.value_S, two.value_S, one.segment_S)
    return CorrelationRecord(
        metric=name,
        other=other,
        value=found.value,
        low=found.low,
        high=found.high,
        n=found.n,
        effective_n=found.effective_n,
        paper=paper,
        reason=found.reason,
    )
