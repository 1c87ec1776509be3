"""What could void a verdict, and what a user should know beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["void", "warning", "note"]
Evidence = float | int | str | bool | None

SEVERITIES: tuple[Severity, ...] = ("void", "warning", "note")
"""Most serious first."""

ARTEFACTS = (
    "insufficient_data",
    "format_collapse",
    "truncated",
    "degenerate_repetition",
    "garbled_text",
    "scorer_mismatch",
    "numeric_noise",
)
"""Codes that can void a verdict, in the order in which they are ruled out."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One observation with its evidence. A "void" finding replaces the regime by its own code."""

    code: str
    severity: Severity
    message: str
    evidence: Mapping[str, Evidence] = field(default_factory=dict)


def finding(
    code: str, severity: Severity, message: str, evidence: Mapping[str, Evidence] | None = None
) -> Finding:
    """A finding in one line."""
    return Finding(code=code, severity=severity, message=message, evidence=evidence or {})


def counted(counts: Mapping[str, int]) -> str:
    """Counts as words.

    >>> counted({"all_failed": 3, "singleton": 1})
    'all failed 3, singleton 1'
    """
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())
