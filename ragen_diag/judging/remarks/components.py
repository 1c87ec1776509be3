"""Remarks on the parts of a reward: too rare to speak of, constant, saturated, cancelling."""

from collections.abc import Callable

from ragen_diag.judging import thresholds as cuts
from ragen_diag.judging.evidence import BatchEvidence
from ragen_diag.judging.findings import Finding, finding
from ragen_diag.metrics.components import MIN_COVERAGE

_MOST_COMPONENTS = 6


def _sparse_components(evidence: BatchEvidence) -> Finding | None:
    sparse = {name: part.n for name, part in evidence.components.items() if part.sparse}
    if not sparse:
        return None
    shown = ", ".join(f"{name} ({n} rows)" for name, n in list(sparse.items())[:_MOST_COMPONENTS])
    more = len(sparse) - _MOST_COMPONENTS
    rest = f" and {more} more" if more > 0 else ""
    return finding(
        "sparse_reward_components",
        "note",
        f"Reward components that few rows have, and that are not looked into: {shown}{rest}.",
        {
            **dict(list(sparse.items())[:_MOST_COMPONENTS]),
            "components": len(sparse),
            "rows": evidence.rows,
            "threshold": MIN_COVERAGE,
        },
    )


def _constant_components(evidence: BatchEvidence) -> Finding | None:
    constant = {
        name: part
        for name, part in evidence.components.items()
        if part.constant and not part.sparse
    }
    if not constant:
        return None
    values = ", ".join(f"{name} = {part.low + 0.0:.6g}" for name, part in constant.items())
    return finding(
        "constant_reward_component",
        "note",
        f"Reward components that never vary: {values}.",
        {name: part.low + 0.0 for name, part in constant.items()},
    )


def _saturated_components(evidence: BatchEvidence) -> Finding | None:
    # A penalty is at its maximum, 0, where there is nothing to penalise.
    saturated = {
        name: part.share_at_high
        for name, part in evidence.components.items()
        if not (part.constant or part.sparse)
        and part.high != 0
        and part.share_at_high >= cuts.COMPONENT_SATURATED
    }
    if not saturated:
        return None
    shares = ", ".join(f"{name} in {share:.1%} of rows" for name, share in saturated.items())
    return finding(
        "saturated_reward_component",
        "note",
        f"Reward components at their maximum: {shares}.",
        {**saturated, "threshold": cuts.COMPONENT_SATURATED},
    )


def _cancelling_components(evidence: BatchEvidence) -> Finding | None:
    kept = evidence.variance_kept
    if kept is None or kept >= cuts.COMPONENTS_CANCEL:
        return None
    return finding(
        "cancelling_reward_components",
        "warning",
        f"Reward components cancel: their sum keeps {kept:.1%} of their variance within prompts.",
        {"variance_kept": kept, "threshold": cuts.COMPONENTS_CANCEL},
    )


RULES: tuple[Callable[[BatchEvidence], Finding | None], ...] = (
    _sparse_components,
    _constant_components,
    _saturated_components,
    _cancelling_components,
)
