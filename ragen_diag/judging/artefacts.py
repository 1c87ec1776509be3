"""What looks like a regime and is none: ruled out before one is named (in order of `ARTEFACTS`).

Comes in: the evidence of one batch. Goes out: findings, each with its numbers; those of severity
"void" replace the verdict. Knows neither meaning nor advice.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ragen_diag.judging import thresholds as cuts
from ragen_diag.judging.evidence import BatchEvidence
from ragen_diag.judging.findings import Finding
from ragen_diag.judging.mismatch import scorer_mismatch
from ragen_diag.judging.thresholds import threshold
from ragen_diag.metrics.information import UNITS
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.text import entropy_of_cap

ZSCORES = ("mi_zscore", "mi_zscore_ema", "mi_zscore_seq", "mi_zscore_ema_seq")


def find_artefacts(evidence: BatchEvidence) -> list[Finding]:
    """All artefacts of a batch, in the order in which they are ruled out."""
    return [found for rule in _RULES if (found := rule(evidence)) is not None]


def usable(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """The metrics as they may be reported: model metrics withheld where the rows with a valid
    reasoning span are a minority, z-scores marked where the marginal std is under its floor."""
    rate, std = (_value(metrics, name) for name in ("valid_thinking_rate", "marginal_std"))
    if rate is not None and rate < cuts.VALID_THINKING_WITHHELD:
        return withhold(metrics, f"only {rate:.1%} of responses have valid reasoning")
    if std is None or std >= cuts.STD_FLOOR:
        return dict(metrics)
    reason = f"unreliable: marginal std {std:.2g} is under {cuts.STD_FLOOR} nats/token"
    marked = {name: replace(metrics[name], reason=reason) for name in ZSCORES if name in metrics}
    return {**metrics, **marked}


def withhold(metrics: Mapping[str, Metric], reason: str) -> dict[str, Metric]:
    """The metrics with every one that a model measured undefined for `reason`."""
    return {
        name: Metric.undefined(reason, unit=metric.unit, n=metric.n) if name in UNITS else metric
        for name, metric in metrics.items()
    }


def _value(metrics: Mapping[str, Metric], name: str) -> float | None:
    return metrics[name].value if name in metrics else None


def _insufficient_data(evidence: BatchEvidence) -> Finding | None:
    scoring = evidence.scoring
    if scoring is None:
        return None
    enough = scoring.prompts >= cuts.MIN_PROMPTS and scoring.scored_rows >= cuts.MIN_SCORED_ROWS
    # Rows that are few because the policy lost its format are told as that, not as a small dump.
    lost = evidence.rows >= cuts.MIN_SCORED_ROWS and _format_collapse(evidence) is not None
    if enough or lost:
        return None
    return Finding(
        code="insufficient_data",
        severity="void",
        message=(
            f"{scoring.scored_rows} scored rows of {scoring.prompts} distinct prompts; a verdict"
            f" needs {cuts.MIN_SCORED_ROWS} rows of {cuts.MIN_PROMPTS} prompts."
        ),
        evidence={
            "scored_rows": scoring.scored_rows,
            "prompts": scoring.prompts,
            "min_scored_rows": cuts.MIN_SCORED_ROWS,
            "min_prompts": cuts.MIN_PROMPTS,
        },
    )


def _format_collapse(evidence: BatchEvidence) -> Finding | None:
    rate = evidence.metrics.get("valid_thinking_rate")
    if rate is None or rate.value is None or rate.value >= cuts.VALID_THINKING:
        return None
    return Finding(
        code="format_collapse",
        severity="void",
        message=(
            f"{rate.value:.1%} of responses have a closed, non-empty reasoning span;"
            f" below {cuts.VALID_THINKING:.0%} the rest do not speak for the policy."
        ),
        evidence={
            "valid_thinking_rate": rate.value,
            "low": rate.low,
            "high": rate.high,
            "threshold": cuts.VALID_THINKING,
        },
    )


def _truncated(evidence: BatchEvidence) -> Finding | None:
    share = evidence.value("truncated_share")
    if share is None or share < cuts.TRUNCATED_SHARE:
        return None
    return Finding(
        code="truncated",
        severity="void",
        message=f"{share:.1%} of responses end at the length cap, so metrics describe prefixes.",
        evidence={
            "truncated_share": share,
            "threshold": cuts.TRUNCATED_SHARE,
            "how": evidence.truncation_how,
            "share_at_longest": evidence.share_at_longest,
            "flat_groups_all_truncated": evidence.reward.flat_groups.get("truncated"),
        },
    )


def _degenerate_repetition(evidence: BatchEvidence) -> Finding | None:
    share = evidence.value("repetition")
    if share is None or share < cuts.REPETITION:
        return None
    return Finding(
        code="degenerate_repetition",
        severity="void",
        message=f"{share:.1%} of the 4-grams of a response repeat an earlier one, on average.",
        evidence={"repetition": share, "threshold": cuts.REPETITION},
    )


def _garbled_text(evidence: BatchEvidence) -> Finding | None:
    reasons = _entropy_ran_away(evidence) + _no_language(evidence)
    if not reasons:
        return None
    before = (evidence.baseline or {}).get(evidence.entropy)
    return Finding(
        code="garbled_text",
        severity="void",
        message=f"The text is garbled: {'; '.join(reasons)}.",
        evidence={
            evidence.entropy: evidence.value(evidence.entropy),
            "entropy_of_log_vocabulary": _entropy_of_cap(evidence),
            "used_vocabulary": evidence.scoring.used_vocabulary if evidence.scoring else 0,
            "baseline_entropy": before.value if before else None,
            "replacement_share": evidence.replacement_share,
            "script_mix": evidence.script_mix,
            "mixed_scripts": evidence.mixed_scripts,
            "disorder": evidence.disorder,
            "threshold_of_log_vocabulary": cuts.ENTROPY_OF_CAP,
            "threshold_over_baseline": cuts.ENTROPY_OVER_BASELINE,
            "threshold_replacement_share": cuts.REPLACEMENT_SHARE,
            "threshold_mixed_scripts": cuts.MIXED_SCRIPTS,
            "threshold_disorder": cuts.DISORDER,
        },
    )


def _entropy_of_cap(evidence: BatchEvidence) -> float | None:
    entropy = evidence.value(evidence.entropy)
    vocabulary = evidence.scoring.used_vocabulary if evidence.scoring else 0
    if entropy is None or vocabulary < cuts.MIN_VOCABULARY:
        return None
    return entropy_of_cap(entropy, vocabulary)


def _entropy_ran_away(evidence: BatchEvidence) -> list[str]:
    entropy = evidence.value(evidence.entropy)
    if entropy is None or evidence.scoring is None:
        return []
    reasons = []
    of_cap = _entropy_of_cap(evidence)
    if of_cap is not None and of_cap > cuts.ENTROPY_OF_CAP:
        vocabulary = evidence.scoring.used_vocabulary
        reasons.append(
            f"entropy per token is {of_cap:.1%} of the log of the {vocabulary} tokens in use"
        )
    before = (evidence.baseline or {}).get(evidence.entropy)
    if before is not None and before.value is not None:
        limit = max(cuts.ENTROPY_OVER_BASELINE * before.value, cuts.ENTROPY_EXPLODED)
        if entropy > limit:
            reasons.append(
                f"entropy per token is {entropy:.3g} nats against a baseline of {before.value:.3g}"
            )
    return reasons


def _no_language(evidence: BatchEvidence) -> list[str]:
    reasons = []
    if evidence.replacement_share >= cuts.REPLACEMENT_SHARE:
        reasons.append(f"{evidence.replacement_share:.1%} of characters are U+FFFD")
    if evidence.mixed_scripts >= cuts.MIXED_SCRIPTS:
        reasons.append(
            f"in {evidence.mixed_scripts:.1%} of texts no script has half of the letters"
        )
    if evidence.disorder is not None and evidence.disorder >= cuts.DISORDER:
        reasons.append(
            f"texts compress to {evidence.disorder:.1%} of what their characters in random order do"
        )
    return reasons


def _numeric_noise(evidence: BatchEvidence) -> Finding | None:
    scoring = evidence.scoring
    if scoring is None:
        return None
    noise, close = scoring.noise_per_response, scoring.rows_within_noise
    mi_seq, log_prompts = evidence.value("mi_seq_estimate"), evidence.value("mi_upper_bound")
    distance = math.inf
    if mi_seq is not None and log_prompts is not None:
        cut = threshold("mi_seq_estimate", log_prompts, evidence.baseline)
        distance = abs(mi_seq - cut.value)
    # What the columns of a row share cancels in MI, and the rest averages over rows.
    of_mean = noise / math.sqrt(max(scoring.scored_rows, 1))
    void = of_mean > distance
    many = close is not None and close > cuts.NOISE_ROWS and noise > cuts.NOISE_FLOOR
    if not (void or many):
        return None
    message = (
        f"Numeric noise of {noise:.2g} nats/response, {of_mean:.2g} in a mean over"
        f" {scoring.scored_rows} responses, exceeds the {distance:.2g} by which mi_seq_estimate"
        " misses its threshold."
        if void
        else f"{close:.1%} of responses have their two best prompts closer than the numeric noise"
        f" of {noise:.2g} nats/response."
    )
    return Finding(
        code="numeric_noise",
        severity="void" if void else "warning",
        message=message,
        evidence={
            "noise_per_response": noise,
            "noise_of_mean": of_mean,
            "distance_to_threshold": distance if math.isfinite(distance) else None,
            "rows_within_noise": close,
            "threshold_rows": cuts.NOISE_ROWS,
            "noise_floor": cuts.NOISE_FLOOR,
        },
    )


_RULES: tuple[Callable[[BatchEvidence], Finding | None], ...] = (
    _insufficient_data,
    _format_collapse,
    _truncated,
    _degenerate_repetition,
    _garbled_text,
    scorer_mismatch,
    _numeric_noise,
)
