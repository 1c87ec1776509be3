"""What a reader should know beside the verdict; nothing here changes it.

Comes in: the evidence of one batch. Goes out: findings of severity "warning" or "note", each one
sentence with its numbers. Knows neither meaning nor advice.
"""

from ragen_diag.judging.evidence import BatchEvidence
from ragen_diag.judging.findings import Finding
from ragen_diag.judging.remarks import components, inputs, rewards, scores, tokens


def find_remarks(evidence: BatchEvidence) -> list[Finding]:
    """All remarks on a batch, in a fixed order: scores, rewards, tokens, inputs and settings."""
    rules = (
        *scores.RULES,
        *rewards.RULES,
        *components.RULES,
        *tokens.RULES,
        *inputs.RULES,
    )
    return [found for rule in rules if (found := rule(evidence)) is not None]
