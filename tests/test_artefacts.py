"""What is ruled out before a regime is named, and what is remarked beside it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ragen_diag.judging.artefacts import find_artefacts, usable
from ragen_diag.judging.evidence import BatchEvidence, ScoringEvidence
from ragen_diag.judging.findings import ARTEFACTS, Finding
from ragen_diag.judging.remarks import find_remarks
from ragen_diag.metrics.agreement import rollout_gap, top_two_margin
from ragen_diag.metrics.components import component_ranges
from ragen_diag.metrics.information import UNITS
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.reward import RewardRows, reward_signal

HEALTHY = {
    "valid_thinking_rate": 1.0,
    "retrieval_skill": 0.9,
    "mi_seq_estimate": 3.0,
    "mi_upper_bound": math.log(32),
    "mi_zscore": 1.0,
    "marginal_std": 0.1,
    "conditional_entropy_est": 0.5,
    "conditional_entropy_seq_est": 12.0,
    "top1_share": 0.02,
    "truncated_share": 0.0,
    "repetition": 0.02,
    "rollout_logprob_gap": 0.001,
}
SCORING = ScoringEvidence(
    scored_rows=128,
    prompts=32,
    used_vocabulary=100,
    noise_per_token=1e-5,
    noise_per_response=1e-4,
    rows_within_noise=0.0,
    checkpoint_step=40,
)
REWARD = reward_signal(RewardRows(reward_N=np.array([0.0, 1, 0, 1]), group_N=list("aabb")))


def _evidence(
    scoring: ScoringEvidence | None = SCORING,
    metrics: dict[str, float | None] | None = None,
    **fields: object,
) -> BatchEvidence:
    values = HEALTHY | (metrics or {})
    return BatchEvidence(
        metrics={name: Metric(value=value) for name, value in values.items()},
        rows=128,
        scoring=scoring,
        **{"reward": REWARD, "dump_step": 40, **fields},
    )


def _codes(findings: list[Finding]) -> dict[str, str]:
    return {finding.code: finding.severity for finding in findings}


BEFORE = {"conditional_entropy_est": Metric(value=0.498)}
CASES = [
    (_evidence(replace(SCORING, prompts=3)), "insufficient_data", "void"),
    (_evidence(replace(SCORING, scored_rows=15)), "insufficient_data", "void"),
    (_evidence(metrics={"valid_thinking_rate": 0.799}), "format_collapse", "void"),
    (_evidence(metrics={"truncated_share": 0.5}), "truncated", "void"),
    (_evidence(metrics={"repetition": 0.95}), "degenerate_repetition", "void"),
    # Word salad: 4.145 nats of log 100 = 4.605 is 0.90; 1.621 is 3.3 x the start's 0.498.
    (_evidence(metrics={"conditional_entropy_est": 4.145}), "garbled_text", "void"),
    (
        _evidence(metrics={"conditional_entropy_est": 1.621}, baseline=BEFORE),
        "garbled_text",
        "void",
    ),
    (_evidence(replacement_share=0.01), "garbled_text", "void"),
    (_evidence(metrics={"rollout_logprob_gap": -0.21}), "scorer_mismatch", "void"),
    (_evidence(metrics={"rollout_logprob_gap": -0.03}), "scorer_mismatch", "warning"),
    # The cut is 0.25 log 32 = 0.866, and a mean over 128 rows has 1/11.3 of a row's noise.
    (
        _evidence(replace(SCORING, noise_per_response=0.5), {"mi_seq_estimate": 0.9}),
        "numeric_noise",
        "void",
    ),
    (
        _evidence(replace(SCORING, noise_per_response=0.1, rows_within_noise=0.11)),
        "numeric_noise",
        "warning",
    ),
]


@pytest.mark.parametrize(("evidence", "code", "severity"), CASES)
def test_each_artefact_alone(evidence: BatchEvidence, code: str, severity: str) -> None:
    (found,) = find_artefacts(evidence)
    assert (found.code, found.severity) == (code, severity)
    assert found.message.endswith(".") and "\n" not in found.message
    assert found.evidence


ABSENT = [
    _evidence(),
    _evidence(scoring=None, metrics=dict.fromkeys(UNITS)),
    _evidence(replace(SCORING, prompts=4, scored_rows=16)),
    _evidence(metrics={"valid_thinking_rate": 0.8, "truncated_share": 0.499}),
    # From a baseline of 0.04 to 0.5 nats is a recovery and no explosion.
    _evidence(baseline={"conditional_entropy_est": Metric(value=0.04)}),
    _evidence(replace(SCORING, noise_per_response=0.3), {"mi_seq_estimate": 0.9}),
    # Four words in use: a choice between them is no word salad, however even.
    _evidence(replace(SCORING, used_vocabulary=4), {"conditional_entropy_est": 1.38}),
    # A gap within the noise of the scorer is none.
    _evidence(replace(SCORING, noise_per_token=0.05), {"rollout_logprob_gap": 0.04}),
    # A constant text ties everywhere, at any noise: too small a noise to mention.
    _evidence(replace(SCORING, rows_within_noise=1.0)),
    _evidence(metrics={"rollout_logprob_gap": None, "mi_seq_estimate": None}),
]


@pytest.mark.parametrize("evidence", ABSENT)
def test_no_artefact(evidence: BatchEvidence) -> None:
    assert find_artefacts(evidence) == []


def test_artefacts_come_in_the_order_of_the_method() -> None:
    worst = _evidence(
        replace(SCORING, prompts=2, noise_per_response=90.0),
        {
            "valid_thinking_rate": 0.1,
            "truncated_share": 0.9,
            "repetition": 0.9,
            "rollout_logprob_gap": 3.0,
        },
        replacement_share=0.2,
    )
    # The prompts are few because the format is lost, and that is told instead of a small dump.
    assert tuple(_codes(find_artefacts(worst))) == ARTEFACTS[1:]
    small = replace(worst, rows=15)
    assert tuple(_codes(find_artefacts(small))) == ARTEFACTS


def test_a_minority_of_valid_responses_withholds_what_the_model_measured() -> None:
    metrics = _evidence(metrics={"valid_thinking_rate": 0.49}).metrics
    kept = usable(metrics)
    assert kept["mi_seq_estimate"].value is None
    assert kept["mi_seq_estimate"].reason == "only 49.0% of responses have valid reasoning"
    assert kept["top1_share"] == metrics["top1_share"]
    assert usable(_evidence(metrics={"valid_thinking_rate": 0.5}).metrics) == metrics | {
        "valid_thinking_rate": Metric(value=0.5)
    }


def test_zscores_are_marked_where_the_batch_is_homogeneous() -> None:
    kept = usable(_evidence(metrics={"marginal_std": 0.0004, "mi_zscore": -15.0}).metrics)
    assert kept["mi_zscore"].value == -15.0
    assert kept["mi_zscore"].reason == ("unreliable: marginal std 0.0004 is under 0.02 nats/token")


def test_healthy_batch_has_no_remark_but_its_thresholds() -> None:
    assert _codes(find_remarks(_evidence())) == {"thresholds_provisional": "note"}


FLAT = reward_signal(
    RewardRows(
        reward_N=np.array([0.0, 0, 1, 1, 1, 0]),
        group_N=list("aabbcc"),
        texts_N=["x", "y", "z", "z ", "u", "v"],
    )
)
PARTS = {"format": np.full(10, 0.5), "length": np.array([1.0] * 19 + [0.0])}
REMARKS = [
    (_evidence(metrics={"mi_seq_estimate": 3.434}), "mi_saturated", "note"),
    (_evidence(metrics={"marginal_std": 0.019}), "zscore_unreliable", "warning"),
    (_evidence(reward=FLAT), "flat_groups", "warning"),
    (_evidence(reward=FLAT), "identical_texts", "warning"),
    (_evidence(components=component_ranges(PARTS)), "constant_reward_component", "note"),
    (_evidence(components=component_ranges(PARTS)), "saturated_reward_component", "note"),
    (_evidence(variance_kept=0.1), "cancelling_reward_components", "warning"),
    (_evidence(missing_rewards=3), "missing_rewards", "warning"),
    (_evidence(excluded={"empty_reasoning": 5}), "rows_excluded", "note"),
    (_evidence(excluded={"empty_reasoning": 20, "too_long": 6}), "rows_excluded", "warning"),
    (_evidence(has_tags=False), "no_reasoning_tags", "note"),
    (_evidence(multiple_spans=2), "multiple_spans", "note"),
    (_evidence(group_sources={"prompt_text": 128}), "groups_inferred", "warning"),
    (_evidence(dump_step=60), "step_mismatch", "warning"),
    (_evidence(dump_step=None), "step_unknown", "note"),
    (_evidence(replace(SCORING, retokenised=128)), "retokenised", "note"),
    (_evidence(replace(SCORING, prompts_before_limit=64)), "prompt_subset", "note"),
    (_evidence(replace(SCORING, compat="ragen")), "settings_compat", "note"),
    (_evidence(replace(SCORING, temperature=0.6)), "settings_temperature", "note"),
    (_evidence(baseline=BEFORE), "baseline_used", "note"),
]


@pytest.mark.parametrize(("evidence", "code", "severity"), REMARKS)
def test_each_remark(evidence: BatchEvidence, code: str, severity: str) -> None:
    remarks = find_remarks(evidence)
    assert _codes(remarks)[code] == severity
    assert all(remark.message.endswith(".") and "\n" not in remark.message for remark in remarks)
    assert {remark.severity for remark in remarks} <= {"warning", "note"}


def test_flat_groups_are_explained() -> None:
    flat = next(
        found for found in find_remarks(_evidence(reward=FLAT)) if found.code == "flat_groups"
    )
    assert flat.message == (
        "2 of 3 groups have no reward variance (identical texts 1, all failed 1);"
        " 50.0% would be if all were equally hard."
    )


def test_unknown_steps_are_named() -> None:
    both = _evidence(replace(SCORING, checkpoint_step=None), dump_step=None)
    messages = {found.code: found.message for found in find_remarks(both)}
    assert messages["step_unknown"] == "The step of the dump and the checkpoint is unknown."


def test_rollout_gap_is_robust_to_single_tokens() -> None:
    # 99 rows off by 0.1 nats over 10 tokens, one row off by 50; two rows without log-probs.
    matched_R = np.full(102, -20.0)
    dumped_R = np.array([-20.1] * 99 + [-70.0, np.nan, np.nan])
    gap = rollout_gap(matched_R, dumped_R, np.full(102, 10))
    assert (gap.median.value, gap.median.n) == (pytest.approx(0.01), 100)
    assert gap.p99_absolute == pytest.approx(0.01 + 0.01 * (5.0 - 0.01))
    none = rollout_gap(matched_R, np.full(102, np.nan), np.full(102, 10))
    assert none.median.value is None and none.p99_absolute is None


def test_top_two_margin() -> None:
    logp_RP = np.array([[-1.0, -3.0, -1.5], [-2.0, -2.0, -9.0]])
    assert top_two_margin(logp_RP).tolist() == [0.5, 0.0]


@pytest.mark.parametrize(("high", "told"), [(-0.07, True), (0.01, False)])
def test_mi_that_is_clearly_negative_is_told(high: float, told: bool) -> None:
    """A constant text of another policy: -0.423 [-0.764, -0.066] nats per response."""
    healthy = _evidence()
    mi_seq = Metric(value=-0.423, low=-0.764, high=high)
    evidence = replace(healthy, metrics={**healthy.metrics, "mi_seq_estimate": mi_seq})
    assert ("mi_negative" in _codes(find_remarks(evidence))) is told
