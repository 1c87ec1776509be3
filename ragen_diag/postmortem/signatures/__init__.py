"""The table of signatures: known ways in which runs go wrong, each with evidence for and against.

Comes in: a `Case`. Goes out: the signatures that hold, surest first. What they mean, how to confirm
them and what to do is prose, kept with that of the findings.
"""

from collections.abc import Callable

from ragen_diag.postmortem.case import Case
from ragen_diag.postmortem.model import Signature
from ragen_diag.postmortem.signatures import artefacts, regimes, symptoms
from ragen_diag.postmortem.signatures.signature import RANK

SIGNATURES: dict[str, Callable[[Case], Signature | None]] = {
    "numerical_failure": artefacts.numerical_failure,
    "truncation_artefact": artefacts.truncation_artefact,
    "format_collapse": artefacts.format_collapse,
    "scorer_mismatch": artefacts.scorer_mismatch,
    "entropy_explosion": regimes.entropy_explosion,
    "low_entropy_collapse": regimes.low_entropy_collapse,
    "template_collapse": regimes.template_collapse,
    "compressed_reasoning": regimes.compressed_reasoning,
    "reward_hacking": symptoms.reward_hacking,
    "signal_starvation": symptoms.signal_starvation,
    "length_blow_up": symptoms.length_blow_up,
    "length_collapse": symptoms.length_collapse,
}
"""Artefacts first, as they are ruled out before a regime is named."""


SYMPTOMS = frozenset({"signal_starvation", "length_blow_up", "length_collapse"})
"""No bad news by themselves: a healthy run that solves its prompts has flat groups too."""


def find_signatures(case: Case) -> tuple[Signature, ...]:
    """All signatures that hold, the surest first, equals in the order of the table."""
    found = [held for rule in SIGNATURES.values() if (held := rule(case)) is not None]
    return tuple(sorted(found, key=lambda held: RANK[held.confidence]))
