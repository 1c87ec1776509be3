"""Verdicts: on figures of real small runs, at the cuts, and on runs of known regime."""

import math

import numpy as np
import pytest

from ragen_diag.judging.findings import ARTEFACTS, Finding
from ragen_diag.judging.regimes import QUADRANTS, Regime, judge
from ragen_diag.judging.thresholds import side, threshold
from ragen_diag.metrics.information import measure
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.text import top1_share
from ragen_diag.metrics.uncertainty import bootstrap
from ragen_diag.testing import Quadrant, synthetic_run

LOG32 = math.log(32)
NAMES = (
    "retrieval_skill",
    "mi_seq_estimate",
    "conditional_entropy_est",
    "conditional_entropy_seq_est",
    "top1_share",
)


def _metrics(*values: float, width: float = 0.02, cap: float = LOG32) -> dict[str, Metric]:
    """Metrics of `NAMES` with intervals of +- `width` of their value."""
    named = dict(zip(NAMES, values, strict=True)) | {"mi_upper_bound": cap}
    return {
        name: Metric(value=value, low=value * (1 - width), high=value * (1 + width))
        for name, value in named.items()
    }


def _skill(accuracy: float) -> float:
    return (accuracy - 1 / 32) / (1 - 1 / 32)


# Retrieval accuracy, MI and H per response and per token, and share of the commonest text, of
# 0.6M-parameter runs evaluated on 32 prompts x 4.
START = _metrics(_skill(0.883), 3.061, 0.498, 12.01, 0.02)
REAL = [
    ("healthy start", START, "diverse_reasoning"),
    ("healthy end", _metrics(_skill(0.992), 3.434, 0.443, 11.15, 0.01), "diverse_reasoning"),
    ("template end", _metrics(_skill(0.181), 0.752, 0.443, 4.0, 0.24), "template_collapse"),
    ("template middle", _metrics(_skill(0.150), 0.444, 0.390, 3.2, 0.31), "template_collapse"),
    ("other template", _metrics(_skill(0.063), 0.059, 0.629, 4.23, 0.20), "template_collapse"),
    (
        "constant 4 tokens",
        _metrics(_skill(0.024), 0.010, 0.433, 1.52, 0.76),
        "low_entropy_collapse",
    ),
    (
        "constant 3 tokens",
        _metrics(_skill(0.031), -0.001, 0.116, 0.35, 0.92),
        "low_entropy_collapse",
    ),
    ("one sentence", _metrics(_skill(0.039), 0.024, 0.054, 0.56, 0.94), "low_entropy_collapse"),
    ("compressed", _metrics(1.0, 3.466, 0.039, 0.99, 0.03), "compressed_reasoning"),
    ("compressing", _metrics(1.0, 3.466, 0.100, 2.49, 0.03), "compressed_reasoning"),
]


@pytest.mark.parametrize("baseline", [None, START], ids=["absolute", "relative"])
@pytest.mark.parametrize(
    ("metrics", "label"), [case[1:] for case in REAL], ids=[c[0] for c in REAL]
)
def test_real_runs(
    metrics: dict[str, Metric], label: str, baseline: dict[str, Metric] | None
) -> None:
    regime = judge(metrics, LOG32, baseline=baseline)
    assert (regime.label, regime.candidates) == (label, ())


def test_result_repeats_value_and_threshold() -> None:
    axis = judge(START, LOG32).axes["mi"]
    assert (axis.metric, axis.threshold, axis.state) == ("retrieval_skill", 0.4, "high")
    assert "Fig. 5" in axis.source
    assert [found.metric for found in axis.checks] == ["retrieval_skill", "mi_seq_estimate"]
    assert axis.checks[1].threshold == pytest.approx(0.25 * LOG32)
    entropy = judge(REAL[5][1], LOG32).axes["entropy"]
    assert (entropy.metric, entropy.value, entropy.state) == ("top1_share", 0.76, "low")


def test_drift_with_an_interval_over_the_cut_names_both_candidates() -> None:
    # Template run at step 40: accuracy 0.402, MI 1.532 of 3.466.
    regime = judge(_metrics(_skill(0.402), 1.532, 0.45, 5.23, 0.17, width=0.1), LOG32)
    assert regime.label == "undetermined"
    assert regime.candidates == ("diverse_reasoning", "template_collapse")


def test_skill_and_mi_that_clearly_disagree() -> None:
    # Plain policy gradient at step 240: accuracy 0.281 is low, MI 1.227 above 0.25 log 32 = 0.866.
    axis = judge(_metrics(_skill(0.281), 1.227, 0.366, 3.71, 0.20), LOG32).axes["mi"]
    assert axis.state == "undetermined"
    assert axis.reason == "retrieval_skill is low while mi_seq_estimate is high"


def test_per_token_mi_has_no_say() -> None:
    metrics = START | {"mi_estimate": Metric(value=0.0, low=0.0, high=0.0)}
    assert judge(metrics, LOG32) == judge(START, LOG32)


@pytest.mark.parametrize(
    ("low", "high", "state"),
    [
        (0.4, 0.4, "high"),
        (0.4, 0.5, "high"),
        (0.3, 0.4, "undetermined"),
        (0.3, math.nextafter(0.4, 0), "low"),
        (math.nextafter(0.4, 0), 0.5, "undetermined"),
    ],
)
def test_exactly_at_the_cut(low: float, high: float, state: str) -> None:
    skill = Metric(value=(low + high) / 2, low=low, high=high)
    assert judge(START | {"retrieval_skill": skill}, LOG32).axes["mi"].checks[0].state == state


def test_at_the_cut_a_common_text_is_low() -> None:
    top1 = Metric(value=0.5)
    assert judge(START | {"top1_share": top1}, LOG32).label == "compressed_reasoning"
    assert side(0.1 + 0.2, 0.1 + 0.2, 0.3) == "at_or_above"


def test_without_an_interval_the_value_is_compared() -> None:
    metrics = {name: Metric(value=metric.value) for name, metric in START.items()}
    assert judge(metrics, LOG32).label == "diverse_reasoning"


def test_entropy_axis_needs_the_entropy_and_not_the_texts() -> None:
    without_text = {name: metric for name, metric in START.items() if name != "top1_share"}
    assert judge(without_text, LOG32).label == "diverse_reasoning"
    metrics = START | {"conditional_entropy_est": Metric.undefined("no scored rows")}
    regime = judge(metrics, LOG32)
    assert regime.axes["entropy"].state == "not_available"
    assert regime.axes["entropy"].reason == "no scored rows"
    assert regime.candidates == ("diverse_reasoning", "compressed_reasoning")


def test_nothing_scored_is_not_judged() -> None:
    regime = judge({"top1_share": Metric(value=0.9)}, 0.0)
    assert (regime.label, regime.candidates) == ("not_judged", ())
    assert regime.axes["mi"].state == "not_available"
    assert regime.axes["entropy"].checks[2].state == "low"


def _void(code: str) -> Finding:
    return Finding(code=code, severity="void", message="")


def test_first_artefact_replaces_the_label_and_leaves_the_candidate() -> None:
    found = [_void(code) for code in ARTEFACTS if code != "format_collapse"]
    regime = judge(START, LOG32, found)
    assert regime.label == "insufficient_data"
    assert regime.candidates == ("diverse_reasoning",)
    assert judge(START, LOG32, found[1:]).label == "truncated"


def test_warnings_replace_nothing() -> None:
    warning = Finding(code="numeric_noise", severity="warning", message="")
    assert judge(START, LOG32, [warning]).label == "diverse_reasoning"


def test_format_collapse_takes_the_mi_axis_away() -> None:
    regime = judge(START, LOG32, [_void("format_collapse")])
    assert regime.label == "format_collapse"
    assert regime.axes["mi"].state == "not_available"
    assert regime.candidates == ("diverse_reasoning", "template_collapse")


def test_baseline_cuts() -> None:
    skill = threshold("retrieval_skill", LOG32, START)
    assert skill.value == pytest.approx(0.5 * _skill(0.883))
    assert threshold("conditional_entropy_est", LOG32, START).value == pytest.approx(0.4 * 0.498)
    # Half of the baseline's share of its cap, on the cap of 8 prompts.
    mi_seq = threshold("mi_seq_estimate", math.log(8), START)
    assert mi_seq.value == pytest.approx(0.5 * 3.061 / LOG32 * math.log(8))
    assert threshold("conditional_entropy_seq_est", LOG32, START).value == 1.0
    assert threshold("top1_share", LOG32, START).value == 0.5


def test_baseline_at_chance_is_no_reference() -> None:
    at_chance = START | {"retrieval_skill": Metric(value=0.02, low=-0.01, high=0.05)}
    assert threshold("retrieval_skill", LOG32, at_chance).value == 0.4
    assert threshold("retrieval_skill", LOG32, {}).value == 0.4


COLLAPSED = _metrics(_skill(0.16), 0.45, 0.390, 3.2, 0.31, width=0.05)


def test_no_worse_than_a_collapsed_baseline_is_no_good_state() -> None:
    """Skill 0.13 against half of itself: the baseline may be a collapsed step."""
    regime = judge(COLLAPSED, LOG32, baseline=COLLAPSED)
    assert regime.label == "undetermined"
    assert regime.candidates == ("diverse_reasoning", "template_collapse")
    assert regime.axes["mi"].reason == "no worse than a baseline that is under 0.4 itself"
    # Half of the baseline's skill is low still, and what is high by the absolute cut is high.
    lower = COLLAPSED | {"retrieval_skill": Metric(value=0.03, low=0.0, high=0.06)}
    assert judge(lower, LOG32, baseline=COLLAPSED).axes["mi"].state == "low"
    assert judge(START, LOG32, baseline=COLLAPSED).label == "diverse_reasoning"


def test_one_text_for_few_prompts_is_low_although_retrieval_is_unclear() -> None:
    """All credit falls to one prompt of eight; the interval of skill spans the cut."""
    metrics = _metrics(0.0, 0.0, 0.1, 0.4, 1.0, cap=math.log(8)) | {
        "retrieval_skill": Metric(value=0.0, low=-0.143, high=0.429),
        "mi_seq_estimate": Metric(value=-0.001, low=-0.04, high=0.036),
        "retrieval_p_value": Metric(value=1.0),
    }
    regime = judge(metrics, math.log(8))
    assert regime.label == "low_entropy_collapse"
    assert regime.axes["mi"].metric == "mi_seq_estimate"
    found = metrics | {"retrieval_p_value": Metric(value=0.01)}
    assert judge(found, math.log(8)).axes["mi"].state == "undetermined"


def _judged(regime: Quadrant, seed: int) -> Regime:
    run = synthetic_run(regime, seed=seed)
    metrics = measure(run.logp_RP, run.n_tokens_R, run.own_R, resamples=300)
    texts = [text.split("</think>")[0] for text in run.table["response"]]
    metrics["top1_share"] = top1_share(texts, bootstrap(run.own_R, resamples=300))
    return judge(metrics, math.log(run.logp_RP.shape[1]))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("regime", QUADRANTS.values())
def test_runs_of_known_regime(regime: Quadrant, seed: int) -> None:
    assert _judged(regime, seed).label == regime


def test_synthetic_likelihoods_are_those_of_the_texts() -> None:
    run = synthetic_run("diverse_reasoning", seed=2, prompts=4, samples=500)
    metrics = measure(run.logp_RP, run.n_tokens_R, run.own_R, resamples=50)
    entropy = metrics["conditional_entropy_est"].value
    assert entropy == pytest.approx(run.true_entropy_per_token, abs=0.02)
    words = [len(text.split()) - 5 for text in run.table["response"]]
    np.testing.assert_array_equal(words, run.n_tokens_R)
    assert run.table["group_id"].n_unique() == run.table["prompt"].n_unique() == 4
