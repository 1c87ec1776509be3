"""Whether the dump's own log-probabilities are what the scorer gives.

Comes in: their gaps, the scorer's noise, and a trial of temperatures. Goes out: an artefact of the
batch, or none. What a gap of a few tokens means is a remark and no artefact.
"""

from ragen_diag.judging import thresholds as cuts
from ragen_diag.judging.evidence import BatchEvidence, ScoringEvidence
from ragen_diag.judging.findings import Evidence, Finding, Severity
from ragen_diag.metrics.agreement import RolloutGap


def mismatch(gap: RolloutGap, noise_per_token: float) -> Severity | None:
    """How serious the gap to the dump's log-probs is; None where it is noise or not known."""
    bias, spread = abs(gap.bias.value or 0.0), gap.spread or 0.0
    if spread <= noise_per_token:
        return None
    if max(bias, spread) > cuts.MISMATCH_VOID:
        return "void"
    return "warning" if bias > cuts.MISMATCH_BIAS or spread > cuts.MISMATCH_SPREAD else None


def scorer_mismatch(evidence: BatchEvidence) -> Finding | None:
    """The scorer does not give what the dump says that the policy gave."""
    scoring = evidence.scoring
    gap = None if scoring is None else scoring.gap
    if scoring is None or gap is None or gap.spread is None:
        return None
    severity = mismatch(gap, scoring.noise_per_token)
    if severity is None:
        return None
    if scoring.yardstick:
        severity = "note"
    fits = fitting_temperature(scoring)
    advice = ""
    expected = ", as may be expected of a scorer of another step" if scoring.yardstick else ""
    if fits is not None and scoring.temperatures is not None:
        left = scoring.temperatures.spread[fits]
        advice = (
            f" The dump's look like ones at temperature {fits:g}, where {left:.2g} are left: give"
            f" --temperature {fits:g}."
        )
    return Finding(
        code="scorer_mismatch",
        severity=severity,
        message=(
            f"The scorer's log-probabilities differ from the dump's by {gap.spread:.3g} nats/token"
            f" ({gap.bias.value:+.3g} with sign, the most extreme 1 % left out), beyond a noise of"
            f" {scoring.noise_per_token:.2g}{expected}.{advice}"
        ),
        evidence={
            "mean_absolute_gap": gap.spread,
            "mean_gap": gap.bias.value,
            "mean_gap_of_all": gap.mean,
            "median_absolute_gap": gap.median_absolute,
            "p99_absolute_gap": gap.p99_absolute,
            "share_of_extremes": gap.extremes / gap.tokens,
            "share_of_top_tokens": gap.top_share,
            "tokens": gap.tokens,
            "rows": gap.rows,
            "noise_per_token": scoring.noise_per_token,
            "retokenised_rows": scoring.retokenised,
            **_at_temperatures(scoring, fits),
            "threshold_bias": cuts.MISMATCH_BIAS,
            "threshold_spread": cuts.MISMATCH_SPREAD,
            "threshold_void": cuts.MISMATCH_VOID,
        },
    )


def fitting_temperature(scoring: ScoringEvidence) -> float | None:
    """The temperature at which the dump's log-probs clearly agree better; None without one."""
    trial = scoring.temperatures
    if trial is None or trial.best == trial.used:
        return None
    best, used = trial.spread[trial.best], trial.spread[trial.used]
    return trial.best if best <= cuts.TEMPERATURE_FITS * used else None


def _at_temperatures(scoring: ScoringEvidence, fits: float | None) -> dict[str, Evidence]:
    trial = scoring.temperatures
    if trial is None:
        return {}
    return {
        "fitting_temperature": fits,
        "best_temperature": trial.best,
        "mean_absolute_gap_at_best": trial.spread[trial.best],
        "mean_absolute_gap_at_used": trial.spread[trial.used],
        "rows_at_temperatures": trial.rows,
    }
