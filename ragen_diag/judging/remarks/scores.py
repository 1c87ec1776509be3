"""Remarks on what the scores say of mutual information."""

from collections.abc import Callable

from ragen_diag.judging import thresholds as cuts
from ragen_diag.judging.evidence import BatchEvidence
from ragen_diag.judging.findings import Finding, finding


def _mi_saturated(evidence: BatchEvidence) -> Finding | None:
    mi_seq, cap = evidence.value("mi_seq_estimate"), evidence.value("mi_upper_bound")
    if mi_seq is None or not cap or mi_seq / cap < cuts.SATURATED:
        return None
    return finding(
        "mi_saturated",
        "note",
        f"mi_seq_estimate is {mi_seq / cap:.1%} of its cap log P = {cap:.3g} nats: a lower bound.",
        {"mi_seq_estimate": mi_seq, "mi_upper_bound": cap, "threshold": cuts.SATURATED},
    )


def _mi_negative(evidence: BatchEvidence) -> Finding | None:
    metric = evidence.metrics.get("mi_seq_estimate")
    if metric is None or metric.high is None or metric.high >= 0:
        return None
    return finding(
        "mi_negative",
        "warning",
        f"mi_seq_estimate is below 0 with its whole interval ([{metric.low:.3g}, {metric.high:.3g}]"
        " nats/response): other prompts explain the responses better than their own.",
        {"mi_seq_estimate": metric.value, "low": metric.low, "high": metric.high},
    )


def _zscore_unreliable(evidence: BatchEvidence) -> Finding | None:
    std = evidence.value("marginal_std")
    if std is None or std >= cuts.STD_FLOOR:
        return None
    return finding(
        "zscore_unreliable",
        "warning",
        f"The marginal std is {std:.2g} nats/token, under {cuts.STD_FLOOR}: MI z-scores explode.",
        {"marginal_std": std, "threshold": cuts.STD_FLOOR},
    )


RULES: tuple[Callable[[BatchEvidence], Finding | None], ...] = (
    _mi_saturated,
    _mi_negative,
    _zscore_unreliable,
)
