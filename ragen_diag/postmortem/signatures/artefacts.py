"""Signatures of what only looks like a collapse, or makes it impossible to tell."""

from ragen_diag.postmortem.case import PERSISTENT, Case, moved
from ragen_diag.postmortem.model import Confidence, OnsetRecord, Signature
from ragen_diag.postmortem.signatures.signature import sentences, signature
from ragen_diag.postmortem.watched import (
    LENGTH,
    LOGGED,
    MI,
    MISMATCH,
    REWARD,
    TRUNCATED,
    VALID,
)
from ragen_diag.timeline.timeline import HISTORY


def numerical_failure(case: Case) -> Signature | None:
    """The model's numbers stop being numbers."""
    broken = [point for point in case.timeline.points if point.numerical]
    lost = [
        onset
        for (name, _), onset in case.onsets.items()
        if onset.kind == "lost" and (name in (REWARD, MI) or name.startswith(HISTORY))
    ]
    spikes = [onset for onset in case.onsets.values() if _is_spike(onset)]
    if not broken and not (lost and spikes) and not any(o.metric == REWARD for o in lost):
        return None
    onset = lost[0] if lost else (spikes[0] if spikes else None)
    evidence = sentences(
        f"step {broken[0].step}: {broken[0].unscored}" if broken else None,
        f"so at {len(broken)} of {len(case.timeline.points)} steps" if len(broken) > 1 else None,
        *(moved(found) for found in (*lost, *spikes)),
    )
    to_the_end = bool(broken) and case.timeline.points[-1].numerical
    confidence: Confidence = "clear" if to_the_end and len(broken) >= PERSISTENT else "likely"
    return signature("numerical_failure", confidence, onset, evidence)


def _is_spike(onset: OnsetRecord) -> bool:
    alarming = onset.alarm and onset.direction == 1 and onset.happened
    named = onset.metric.removeprefix(HISTORY).lower()
    return alarming and onset.metric.startswith(HISTORY) and any(p in named for p in LOGGED[0][0])


def truncation_artefact(case: Case) -> Signature | None:
    """Responses end at the length cap, so that every metric describes prefixes."""
    rose, void = case.rose(TRUNCATED), case.finding_at_end("truncated", "void")
    if rose is None and not void:
        return None
    evidence = sentences(
        None if rose is None else moved(rose),
        f"at least half of the responses end at the cap at steps {_list(void)}" if void else None,
        None if (longer := case.rose(LENGTH)) is None else moved(longer),
    )
    confidence: Confidence = "clear" if len(void) >= PERSISTENT else "likely"
    return signature("truncation_artefact", confidence, rose, evidence)


def format_collapse(case: Case) -> Signature | None:
    """The closed, non-empty reasoning span is lost; the survivors' MI means little."""
    fell, ends = case.fell(VALID), case.ends_as("format_collapse")
    if fell is None and not ends:
        return None
    evidence = sentences(
        None if fell is None else moved(fell),
        f"the last {ends} judged steps have too few valid spans to judge" if ends else None,
        None if (reward := case.fell(REWARD)) is None else moved(reward),
    )
    persistent = ends >= PERSISTENT
    confidence: Confidence = "clear" if persistent and fell else "likely" if ends else "possible"
    return signature("format_collapse", confidence, fell, evidence)


def scorer_mismatch(case: Case) -> Signature | None:
    """The policy's own checkpoint does not give what the dump says that the policy gave."""
    found = case.finding_at_end("scorer_mismatch", "void", "warning", policy=True)
    drift = case.rose(MISMATCH) if not case.timeline.marks.scorer_changes else None
    if not found and drift is None:
        return None
    evidence = sentences(
        f"log-probabilities differ from the dump's at steps {_list(found)}" if found else None,
        None if drift is None else moved(drift),
        None
        if drift is None
        else "such a drift may be of the sampler or of the trainer; it does not say that the"
        " policy moved",
    )
    confidence: Confidence = "likely" if found else "possible"
    return signature("scorer_mismatch", confidence, drift, evidence)


def _list(steps: list[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(steps)))
