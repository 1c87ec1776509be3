"""How a signature is put together."""

from collections.abc import Sequence

from ragen_diag.postmortem.model import Confidence, OnsetRecord, Signature

RANK: dict[Confidence, int] = {"clear": 0, "likely": 1, "possible": 2}


def signature(
    code: str,
    confidence: Confidence,
    onset: OnsetRecord | None,
    evidence: Sequence[str],
    against: Sequence[str] = (),
) -> Signature:
    """A signature with the interval of the onset that it rests on."""
    return Signature(
        code=code,
        confidence=confidence,
        last_good=None if onset is None else onset.last_good,
        first_bad=None if onset is None else onset.first_bad,
        evidence=tuple(evidence),
        against=tuple(against),
    )


def sentences(*said: str | None) -> tuple[str, ...]:
    """What there is to say, each once."""
    return tuple(dict.fromkeys(text for text in said if text))
