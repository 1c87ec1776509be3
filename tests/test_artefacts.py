"""What is ruled out before a regime is named, and what is remarked beside it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ragen_diag.judging.artefacts import find_artefacts, usable
from ragen_diag.judging.evidence import BatchEvidence, ScoringEvidence
from ragen_diag.judging.findings import ARTEFACTS, Finding
from ragen_diag.judging.regimes import judge
from ragen_diag.judging.remarks import find_remarks
from ragen_diag.judging.remarks.inputs import ATTENTION
from ragen_diag.metrics.agreement import RolloutGap, rollout_gap, top_two_margin
from ragen_diag.metrics.answers import AnswerSummary
from ragen_diag.metrics.components import component_ranges
from ragen_diag.metrics.garble import disorder, mixed_script_share
from ragen_diag.metrics.information import UNITS
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.phantom import PhantomVariance
from ragen_diag.metrics.reward import RewardRows, reward_signal
from ragen_diag.report import words

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


def _gap(bias: float) -> RolloutGap:
    """Ours and the dump's differ by the same on each of 100 tokens."""
    return rollout_gap([np.full(100, -1.0 + bias)], [np.full(100, -1.0)])


def _mismatched(bias: float, noise: float = 1e-5) -> ScoringEvidence:
    return replace(SCORING, gap=_gap(bias), noise_per_token=noise)


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
    (_evidence(mixed_scripts=0.25), "garbled_text", "void"),
    (_evidence(disorder=0.9), "garbled_text", "void"),
    # Without a checkpoint the texts alone can show it.
    (_evidence(None, dict.fromkeys(UNITS), disorder=0.98), "garbled_text", "void"),
    (_evidence(_mismatched(-0.21)), "scorer_mismatch", "void"),
    (_evidence(_mismatched(-0.03)), "scorer_mismatch", "warning"),
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
    _evidence(_mismatched(0.04, noise=0.05)),
    _evidence(_mismatched(0.001)),
    # A constant text ties everywhere, at any noise: too small a noise to mention.
    _evidence(replace(SCORING, rows_within_noise=1.0)),
    _evidence(replace(SCORING, gap=rollout_gap([], [])), {"mi_seq_estimate": None}),
    # Two languages, terms of one in the other; arithmetic compresses to two thirds.
    _evidence(mixed_scripts=0.24, script_mix=0.4, disorder=0.8),
]


@pytest.mark.parametrize("evidence", ABSENT)
def test_no_artefact(evidence: BatchEvidence) -> None:
    assert find_artefacts(evidence) == []


def test_artefacts_come_in_the_order_of_the_method() -> None:
    worst = _evidence(
        replace(_mismatched(3.0), prompts=2, noise_per_response=90.0),
        {
            "valid_thinking_rate": 0.1,
            "truncated_share": 0.9,
            "repetition": 0.9,
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


def _flat(groups: int, flat: int, size: int = 8) -> RewardRows:
    """`flat` groups that fail with different texts, and others with one success."""
    reward_GN = np.zeros((groups, size))
    reward_GN[flat:, 0] = 1.0
    return RewardRows(
        reward_N=reward_GN.ravel(),
        group_N=[str(group) for group in np.repeat(np.arange(groups), size)],
        texts_N=[str(row) for row in range(groups * size)],
    )


FLAT = reward_signal(
    RewardRows(
        reward_N=np.array([0.0, 0, 1, 1, 1, 0]),
        group_N=list("aabbcc"),
        texts_N=["x", "y", "z", "z ", "u", "v"],
    )
)
ANSWERS = AnswerSummary(
    answers=32,
    empty=31,
    missing=0,
    best=1.0,
    at_best=1.0,
    varies=False,
    empty_scored=31,
    empty_at_best=31,
    prompts=8,
    sharing=8,
    commonest="",
    truths=8,
)
PHANTOM = PhantomVariance(groups=3, failed=2, varying=8, share=0.25)
LONGER_IS_BETTER = Metric(value=0.5, low=0.1, high=0.9)
PARTS = {"format": np.full(10, 0.5), "length": np.array([1.0] * 19 + [0.0])}
REMARKS = [
    (_evidence(metrics={"mi_seq_estimate": 3.434}), "mi_saturated", "note"),
    (_evidence(metrics={"marginal_std": 0.019}), "zscore_unreliable", "warning"),
    # 5 of 8 groups of 8 are flat; were all of rate 3/64, 0.68 would be.
    (_evidence(reward=reward_signal(_flat(8, 5))), "flat_groups", "note"),
    # 30 of 40: at rate 10/320 0.78 would be.
    (_evidence(reward=reward_signal(_flat(40, 30))), "flat_groups", "note"),
    (_evidence(reward=FLAT), "identical_texts", "warning"),
    # Two of three flat, where a half would be by chance.
    (_evidence(reward=FLAT), "small_groups", "warning"),
    (_evidence(metrics={"distinct_ratio_in_groups": 0.5}), "few_distinct_texts", "warning"),
    (_evidence(phantom=PHANTOM), "phantom_variance", "warning"),
    (_evidence(answers=ANSWERS), "empty_answers_rewarded", "warning"),
    (_evidence(answers=ANSWERS), "answers_independent_of_prompt", "warning"),
    (_evidence(reading={"nan_reward": 3}), "dump_repaired", "note"),
    (_evidence(scope="turn_2"), "later_turns", "warning"),
    (_evidence(policy_versions={"8": 20, "9": 40}), "mixed_policy_versions", "warning"),
    (_evidence(policy_versions={"8..9": 60}, spanning=60), "mixed_policy_versions", "warning"),
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
    assert all(words.finding_words(remark.code).meaning for remark in remarks)


def test_flat_groups_are_explained() -> None:
    flat = next(
        found for found in find_remarks(_evidence(reward=FLAT)) if found.code == "flat_groups"
    )
    assert flat.message == (
        "2 of 3 groups have no reward variance (identical texts 1, all failed 1);"
        " 50.0% would be if all were equally hard."
    )
    assert flat.evidence["identical_texts"] == 1
    assert flat.evidence["flat_with_different_texts"] == 1
    assert flat.evidence["excess_over_chance"] == pytest.approx(1 / 6)


def test_flat_groups_beyond_chance_are_a_warning() -> None:
    # 40 groups of 8, half always solved and half always failed: chance gives 2 x 0.5^8.
    rewards = np.repeat([0.0, 1.0], 160)
    rows = RewardRows(reward_N=rewards, group_N=[str(row // 8) for row in range(320)])
    found = {f.code: f for f in find_remarks(_evidence(reward=reward_signal(rows)))}
    assert found["flat_groups"].severity == "warning"
    assert found["flat_groups"].evidence["excess_over_chance"] == pytest.approx(1 - 2 / 256)
    assert "small_groups" not in found
    # Of groups of one reward nothing can be told; that is a warning of its own.
    single = RewardRows(reward_N=rewards, group_N=[str(row) for row in range(320)])
    found = {f.code: f for f in find_remarks(_evidence(reward=reward_signal(single)))}
    assert "flat_groups" not in found
    assert found["groups_not_compared"].severity == "warning"
    assert found["groups_not_compared"].evidence["singleton"] == 320
    assert "small_groups" not in found


SILENT = [
    # All failed: what an empty answer earns is nothing worth having.
    (replace(ANSWERS, best=0.0), {"empty_answers_rewarded", "answers_independent_of_prompt"}),
    # Answers are empty throughout and rewards differ: they stand somewhere else.
    (
        replace(ANSWERS, empty=32, empty_scored=32, varies=True, at_best=0.6),
        {"empty_answers_rewarded", "answers_independent_of_prompt"},
    ),
    (replace(ANSWERS, empty_at_best=15), {"empty_answers_rewarded"}),
    (replace(ANSWERS, empty=0, empty_scored=0, empty_at_best=0), {"empty_answers_rewarded"}),
    # All prompts expect one answer and get it.
    (replace(ANSWERS, truths=1), {"answers_independent_of_prompt"}),
    (replace(ANSWERS, sharing=7), {"answers_independent_of_prompt"}),
    (replace(ANSWERS, at_best=0.94), {"answers_independent_of_prompt"}),
    (replace(ANSWERS, prompts=3, sharing=3), {"answers_independent_of_prompt"}),
]


@pytest.mark.parametrize(("answers", "silent"), SILENT)
def test_answers_that_are_no_sign_of_a_loophole(answers: AnswerSummary, silent: set[str]) -> None:
    told = set(_codes(find_remarks(_evidence(answers=answers))))
    both = {"empty_answers_rewarded", "answers_independent_of_prompt"}
    assert told & both == both - silent


def test_pay_by_length_is_told_where_success_does_not_differ() -> None:
    healthy = _evidence(phantom=PHANTOM)
    paid = {**healthy.metrics, "reward_length_correlation": LONGER_IS_BETTER}
    told = replace(healthy, metrics=paid)
    assert _codes(find_remarks(told))["reward_follows_length"] == "warning"
    assert words.finding_words("reward_follows_length").meaning
    unclear = {**paid, "reward_length_correlation": replace(LONGER_IS_BETTER, low=-0.1)}
    for silent in (
        replace(told, phantom=None),
        replace(told, phantom=replace(PHANTOM, share=0.2)),
        replace(told, metrics=unclear),
    ):
        assert "reward_follows_length" not in _codes(find_remarks(silent))


def test_harmless_repairs_stand_apart_from_doubtful_readings() -> None:
    reading = {"nan_reward": 3, **dict.fromkeys(ATTENTION, 2), "later_turn": 5}
    found = {finding.code: finding for finding in find_remarks(_evidence(reading=reading))}
    assert found["dump_repaired"].evidence == {"nan_reward": 3, "later_turn": 5}
    assert found["dump_needs_attention"].severity == "warning"
    assert words.finding_words("dump_needs_attention").meaning
    assert dict(found["dump_needs_attention"].evidence) == dict.fromkeys(ATTENTION, 2)
    harmless = _codes(find_remarks(_evidence(reading={"later_turn": 5})))
    assert "dump_needs_attention" not in harmless


def test_many_policy_versions_are_told_in_one_line() -> None:
    versions = {str(version): 4 for version in range(20)}
    found = {f.code: f for f in find_remarks(_evidence(policy_versions=versions))}
    message = found["mixed_policy_versions"].message
    assert "5 (4 rows) and 14 more; 0 rows span several" in message
    one = _codes(find_remarks(_evidence(policy_versions={"8": 64})))
    assert "mixed_policy_versions" not in one


def test_entropy_that_rises_into_garble_never_earns_a_regime() -> None:
    """Texts drift from English to code points of several scripts, entropy from 0.4 to 3.5."""
    rng = np.random.default_rng(0)
    fluent = ["first move the box to the left then go up and check the row below it"] * 40
    ranges = [(0x41, 0x5A), (0x410, 0x44F), (0x4E00, 0x9FFF), (0x5D0, 0x5EA), (0x905, 0x939)]
    salad = [
        "".join(chr(rng.integers(*ranges[rng.integers(len(ranges))])) for _ in range(60))
        for _ in range(40)
    ]
    # 40 x 60 letters are some 1500 tokens: 3.5 is 0.48 of their log, and no alarm of its own.
    large = replace(SCORING, used_vocabulary=1500)
    for texts, entropy, label in (
        (fluent, 0.4, "diverse_reasoning"),
        (salad, 3.5, "garbled_text"),
    ):
        evidence = _evidence(
            large,
            {"conditional_entropy_est": entropy, "conditional_entropy_seq_est": 60 * entropy},
            mixed_scripts=mixed_script_share(texts),
            disorder=disorder(texts),
        )
        findings = find_artefacts(evidence)
        assert judge(evidence.metrics, math.log(32), findings).label == label
    # Little MI and much entropy is no diversity either, with or without garble.
    low = replace(evidence, metrics={**evidence.metrics, "retrieval_skill": Metric(value=0.0)})
    low = replace(low, metrics={**low.metrics, "mi_seq_estimate": Metric(value=0.1)})
    regime = judge(low.metrics, math.log(32), find_artefacts(low))
    assert (regime.label, regime.candidates) == ("garbled_text", ("template_collapse",))


def test_unknown_steps_are_named() -> None:
    both = _evidence(replace(SCORING, checkpoint_step=None), dump_step=None)
    messages = {found.code: found.message for found in find_remarks(both)}
    assert messages["step_unknown"] == "The step of the dump and the checkpoint is unknown."


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
