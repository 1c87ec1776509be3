"""Signatures of the regimes: what reasoning turned into (RAGEN-2, Fig. 1)."""

from ragen_diag.postmortem.case import PERSISTENT, Case, moved
from ragen_diag.postmortem.model import Confidence, OnsetRecord, Signature
from ragen_diag.postmortem.signatures.signature import sentences, signature
from ragen_diag.postmortem.watched import (
    DISTINCT,
    ENTROPY,
    LENGTH,
    MI,
    MI_SEQ,
    REWARD,
    SUCCESS,
    TOP1,
    VALID,
)


def template_collapse(case: Case) -> Signature | None:
    """Input-dependence is lost while entropy stays: what reward and entropy do not show."""
    label = "template_collapse"
    mi, ends = case.fell(MI) or case.fell(MI_SEQ), case.ends_as(label)
    if (mi is None or mi.kind == "lost") and ends < PERSISTENT:
        return None
    if case.ends_as("low_entropy_collapse") or case.ends_as("format_collapse"):
        return None
    evidence = sentences(
        *_input_dependence(case),
        case.kept_level(ENTROPY),
        _state(case, label),
        *(moved(onset) for onset in _outcomes(case)),
    )
    against = sentences(
        _said(case.fell(ENTROPY)),
        _said(case.rose(ENTROPY)),
        _said(case.fell(VALID)),
        _mi_holds(case) if not ends else None,
    )
    return signature(label, _regime_confidence(case, label, mi, against), mi, evidence, against)


def low_entropy_collapse(case: Case) -> Signature | None:
    """Nearly one text, whatever the prompt."""
    label = "low_entropy_collapse"
    entropy, ends = case.fell(ENTROPY), case.ends_as(label)
    low_too = entropy is not None and (case.fell(MI) is not None or case.fell(MI_SEQ) is not None)
    if not ends and not (low_too and case.may_end_as(label)):
        return None
    onset = entropy or case.rose(TOP1) or case.fell(MI)
    evidence = sentences(
        _said(entropy),
        _said(case.rose(TOP1)),
        _said(case.fell(DISTINCT)),
        *_input_dependence(case),
        _state(case, label),
        *(moved(found) for found in _outcomes(case)),
    )
    against = sentences(_said(case.rose(ENTROPY)), _said(case.fell(VALID)))
    return signature(
        label, _regime_confidence(case, label, onset, against), onset, evidence, against
    )


def compressed_reasoning(case: Case) -> Signature | None:
    """Faithful to the prompt, but over-deterministic."""
    label = "compressed_reasoning"
    entropy, ends = case.fell(ENTROPY), case.ends_as(label)
    if not ends:
        return None
    evidence = sentences(_said(entropy), case.kept_level(MI), _state(case, label))
    against = sentences(_said(case.fell(MI)))
    return signature(
        label, _regime_confidence(case, label, entropy, against), entropy, evidence, against
    )


def entropy_explosion(case: Case) -> Signature | None:
    """Entropy rises until the text is garbage: high entropy alone never earns "diverse"."""
    rose, garbled = case.rose(ENTROPY), case.finding_at_end("garbled_text")
    if rose is None and not garbled:
        return None
    evidence = sentences(
        _said(rose),
        f"text is garbled at steps {_list(garbled)}" if garbled else None,
        *_input_dependence(case),
        *(moved(onset) for onset in _outcomes(case)),
    )
    against = sentences(
        None if garbled else "the texts themselves do not look garbled",
        case.kept_level(MI) if case.fell(MI) is None and case.fell(MI_SEQ) is None else None,
        _said(case.rose(SUCCESS)),
    )
    confidence: Confidence = "possible"
    if rose is not None and len(garbled) >= PERSISTENT:
        confidence = "clear"
    elif (rose is not None and case.fell(MI) is not None) or len(garbled) >= PERSISTENT:
        confidence = "likely"
    return signature("entropy_explosion", confidence, rose, evidence, against)


def _regime_confidence(
    case: Case, label: str, onset: OnsetRecord | None, against: tuple[str, ...]
) -> Confidence:
    """Clear: an onset, and a state that persists, with nothing against; likely: one of the two."""
    ends = case.ends_as(label)
    if ends >= PERSISTENT and onset is not None and not against:
        return "clear"
    if ends >= PERSISTENT or (onset is not None and (ends or case.may_end_as(label))):
        return "likely"
    return "possible"


def _input_dependence(case: Case) -> list[str]:
    return [moved(found) for name in (MI, MI_SEQ) if (found := case.fell(name)) is not None]


def _outcomes(case: Case) -> list[OnsetRecord]:
    found = [case.fell(SUCCESS), case.fell(REWARD), case.rose(REWARD), case.fell(LENGTH)]
    return [onset for onset in found if onset is not None]


def _mi_holds(case: Case) -> str | None:
    if not case.judged or case.may_end_as("template_collapse"):
        return None
    return f"the last judged step is {case.judged[-1].result.regime.label}"


def _state(case: Case, label: str) -> str | None:
    ends = case.ends_as(label)
    if not ends:
        return None
    from_start = ends == len(case.judged)
    steps = f"all {ends} judged steps are" if from_start else f"the last {ends} judged steps are"
    steps = "the last judged step is" if ends == 1 else steps
    return f"{steps} {label}" + (", from the first on" if from_start else "")


def _said(onset: OnsetRecord | None) -> str | None:
    return None if onset is None else moved(onset)


def _list(steps: list[int]) -> str:
    return ", ".join(map(str, steps))
