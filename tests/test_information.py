"""Metrics from cross-scores: golden values by hand, identities, invariances over all of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_diag.metrics.information import (
    TOP_K,
    UNITS,
    ema_std,
    measure,
    per_prompt_mean,
)
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.mixture import row_scores
from ragen_diag.metrics.retrieval import retrieval_credit

LOG2 = math.log(2)

# Three responses under three prompts, one each, with 2, 1 and 4 tokens:
#
#   p(z|x)  x0    x1    x2     own   mixture = row mean        own / mixture
#   z0      0.4   0.1   0.1    0.4   0.6 / 3  = 0.2            2
#   z1      0.3   0.3   0.3    0.3   0.9 / 3  = 0.3            1
#   z2      0.2   0.05  0.05   0.05  0.3 / 3  = 0.1            1/2
LOGP_RP = np.log([[0.4, 0.1, 0.1], [0.3, 0.3, 0.3], [0.2, 0.05, 0.05]])
N_TOKENS_R = np.array([2, 1, 4])
OWN_R = np.array([0, 1, 2])

# Credit at 1: z0 best = 1; z1 ties with all = 1/3; z2 beaten by x0 = 0.       Mean 4/9.
# Credit at 2: z0 1; z1 two of three places = 2/3; z2 one place for two = 1/2.  Mean 13/18.
# Skill: (4/9 - 1/3) / (2/3) = (1/9) / (2/3) = 1/6.
# Gaps in nats: log 2, 0, -log 2 per response; log 2 / 2, 0, -log 2 / 4 per token.
# log 0.2, log 0.3, log 0.1 are the marginals: their std is the seq denominator.
MARGINAL_SEQ = [math.log(0.2), math.log(0.3), math.log(0.1)]
MARGINAL = [math.log(0.2) / 2, math.log(0.3), math.log(0.1) / 4]


def _std(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


GOLDEN = {
    "retrieval_accuracy": 4 / 9,
    "retrieval_accuracy@2": 13 / 18,
    "retrieval_accuracy_rows": 4 / 9,
    "retrieval_chance_level": 1 / 3,
    "retrieval_above_chance": 1 / 9,
    "retrieval_skill": 1 / 6,
    "mi_estimate": LOG2 / 12,
    "mi_estimate_rows": LOG2 / 12,
    "mi_seq_estimate": 0.0,
    "mi_seq_estimate_rows": 0.0,
    "mi_upper_bound": math.log(3),
    "mi_zscore": LOG2 / 12 / (_std(MARGINAL) + 1e-3),
    "mi_zscore_ema": LOG2 / 12 / (_std(MARGINAL) + 1e-3),
    "mi_zscore_seq": 0.0,
    "mi_zscore_ema_seq": 0.0,
    "conditional_entropy_est": -(math.log(0.4) / 2 + math.log(0.3) + math.log(0.05) / 4) / 3,
    "conditional_entropy_seq_est": -math.log(0.4 * 0.3 * 0.05) / 3,
    "reasoning_entropy_est": -sum(MARGINAL) / 3,
    "reasoning_entropy_seq_est": -math.log(0.2 * 0.3 * 0.1) / 3,
    "marginal_std": _std(MARGINAL),
    "marginal_std_ema": _std(MARGINAL),
    "marginal_std_seq": _std(MARGINAL_SEQ),
    "marginal_std_ema_seq": _std(MARGINAL_SEQ),
    # Six dealings; z1 is indifferent, so p(z0) p(z2) decides. Observed 0.4 * 0.05 = 0.02, and the
    # same with z0 on x0 and z2 on x1, or with z2 on x0 (0.1 * 0.2, twice); z1 on x0 leaves
    # 0.1 * 0.05 (twice). Four of six reach 0.02.
    "mi_p_value": 4 / 6,
    # Both z0 and z2 earn credit on x0 alone: the same four dealings reach the observed one.
    "retrieval_p_value": 4 / 6,
}


def _values(metrics: dict[str, Metric]) -> dict[str, float | None]:
    return {name: metric.value for name, metric in metrics.items()}


def _random(seed: int, rows: int = 17, columns: int = 5) -> tuple[np.ndarray, ...]:
    """Uneven groups, some ties, texts that fit their prompt a little better."""
    rng = np.random.default_rng(seed)
    own_R = np.concatenate([np.arange(columns), rng.integers(0, columns, rows - columns)])
    logp_RP = rng.normal(-30, 2, (rows, columns)).round(1)
    logp_RP[np.arange(rows), own_R] += 1.5
    return logp_RP, rng.integers(3, 20, rows), own_R


def test_golden_values() -> None:
    values = _values(measure(LOGP_RP, N_TOKENS_R, OWN_R))
    undefined = {f"retrieval_accuracy@{k}" for k in (4, 8)}
    assert {name for name, value in values.items() if value is None} == undefined
    assert {name: values[name] for name in GOLDEN} == pytest.approx(GOLDEN, abs=1e-12)
    assert set(GOLDEN) | undefined == set(values) == set(UNITS)


def test_means_weigh_prompts_and_not_rows() -> None:
    # Prompt 0 owns two rows with own / mixture = 0.4 / 0.25 = 1.6, prompt 1 one with 0.3 / 0.3.
    logp_RP = np.log([[0.4, 0.1], [0.4, 0.1], [0.3, 0.3]])
    metrics = measure(logp_RP, np.array([1, 1, 1]), np.array([0, 0, 1]))
    values = _values(metrics)
    assert values["mi_seq_estimate"] == pytest.approx(math.log(1.6) / 2)
    assert values["mi_seq_estimate_rows"] == pytest.approx(2 * math.log(1.6) / 3)
    assert values["retrieval_accuracy"] == pytest.approx((1 + 0.5) / 2)
    assert values["retrieval_accuracy_rows"] == pytest.approx((1 + 1 + 0.5) / 3)


@pytest.mark.parametrize("compat", ["none", "ragen"])
@pytest.mark.parametrize("seed", range(5))
def test_entropy_is_information_plus_conditional_entropy(seed: int, compat: str) -> None:
    values = _values(measure(*_random(seed), compat=compat))
    for seq in ("", "_seq"):
        total = values[f"mi{seq}_estimate"] + values[f"conditional_entropy{seq}_est"]
        assert values[f"reasoning_entropy{seq}_est"] == pytest.approx(total, abs=1e-9)


def test_compat_ragen_is_the_formula_of_the_public_code() -> None:
    """Loops over plain floats: token means first, mixed afterwards, averaged over rows."""
    logp_RP, n_tokens_R, own_R = _random(3)
    rows, columns = logp_RP.shape
    matched, marginal, matched_seq, marginal_seq, hits = [], [], [], [], []
    for r in range(rows):
        sums = [float(logp_RP[r, p]) for p in range(columns)]
        means = [value / int(n_tokens_R[r]) for value in sums]
        matched.append(means[own_R[r]])
        marginal.append(math.log(sum(math.exp(value) for value in means)) - math.log(columns))
        matched_seq.append(sums[own_R[r]])
        marginal_seq.append(math.log(sum(math.exp(value) for value in sums)) - math.log(columns))
        best = [p for p in range(columns) if means[p] == max(means)]
        hits.append(own_R[r] in best and 1 / len(best))
    mi = sum(matched) / rows - sum(marginal) / rows
    mi_seq = sum(matched_seq) / rows - sum(marginal_seq) / rows
    values = _values(measure(logp_RP, n_tokens_R, own_R, compat="ragen"))
    expected = {
        "mi_estimate": mi,
        "mi_seq_estimate": mi_seq,
        "mi_zscore": mi / (_std(marginal) + 1e-3),
        "mi_zscore_seq": mi_seq / (_std(marginal_seq) + 1e-3),
        "marginal_std": _std(marginal),
        "marginal_std_seq": _std(marginal_seq),
        "conditional_entropy_est": -sum(matched) / rows,
        "conditional_entropy_seq_est": -sum(matched_seq) / rows,
        "reasoning_entropy_est": -sum(marginal) / rows,
        "reasoning_entropy_seq_est": -sum(marginal_seq) / rows,
        "retrieval_accuracy": sum(hits) / rows,
    }
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-10)


CHANGED_BY_RAGEN = {
    "mi_estimate",
    "mi_estimate_rows",
    "mi_zscore",
    "mi_zscore_ema",
    "reasoning_entropy_est",
    "marginal_std",
    "marginal_std_ema",
}


@pytest.mark.parametrize("name", UNITS)
def test_on_even_groups_compat_ragen_changes_per_token_information_only(name: str) -> None:
    logp_RP, n_tokens_R, _ = _random(4, rows=20)
    own_R = np.repeat(np.arange(5), 4)
    ours = measure(logp_RP, n_tokens_R, own_R)[name].value
    theirs = measure(logp_RP, n_tokens_R, own_R, compat="ragen")[name].value
    assert (ours != pytest.approx(theirs, abs=1e-9)) == (name in CHANGED_BY_RAGEN)


@pytest.mark.parametrize("compat", ["none", "ragen"])
@pytest.mark.parametrize("name", UNITS)
def test_invariances(name: str, compat: str) -> None:
    logp_RP, n_tokens_R, own_R = _random(1)
    value = measure(logp_RP, n_tokens_R, own_R, compat=compat)[name].value

    def again(logp_RP: np.ndarray, n_tokens_R: np.ndarray, own_R: np.ndarray) -> float | None:
        return measure(logp_RP, n_tokens_R, own_R, compat=compat)[name].value

    rows = np.random.default_rng(8).permutation(len(own_R))
    assert again(logp_RP[rows], n_tokens_R[rows], own_R[rows]) == pytest.approx(value, abs=1e-9)

    columns = np.array([3, 0, 4, 1, 2])
    moved_R = np.argsort(columns)[own_R]
    assert again(logp_RP[:, columns], n_tokens_R, moved_R) == pytest.approx(value, abs=1e-9)

    # A factor p(z) common to all prompts says nothing about the prompt.
    shifted = again(logp_RP - 3.0 * n_tokens_R[:, None], n_tokens_R, own_R)
    says_which_prompt = name.startswith(("retrieval", "mi_")) and "zscore" not in name
    if says_which_prompt:
        assert shifted == pytest.approx(value, abs=1e-9)
    elif "entropy" in name:
        assert shifted != pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize("name", UNITS)
def test_plain_floats_with_an_ordered_interval(name: str) -> None:
    metric = measure(*_random(2))[name]
    assert metric.unit == UNITS[name]
    if metric.value is None:
        assert metric.reason and metric.low is None and metric.high is None
        return
    exact = name in {"retrieval_chance_level", "mi_upper_bound"} or name.endswith("p_value")
    numbers = [metric.value] if exact else [metric.low, metric.value, metric.high]
    assert [type(number) for number in numbers] == [float] * len(numbers)
    assert numbers == sorted(numbers)
    assert metric.n > 0


def test_counting_every_prompt_twice_halves_retrieval_and_leaves_the_mixture() -> None:
    # Why a duplicate prompt must be one column: as two it competes with itself.
    logp_RP, n_tokens_R, own_R = _random(5)
    once = _values(measure(logp_RP, n_tokens_R, own_R))
    twice = _values(measure(np.hstack([logp_RP, logp_RP]), n_tokens_R, own_R))
    assert twice["mi_seq_estimate"] == pytest.approx(once["mi_seq_estimate"])
    assert twice["retrieval_accuracy"] == pytest.approx(once["retrieval_accuracy"] / 2)


def test_column_without_responses_is_a_candidate_and_no_average() -> None:
    logp_RP = np.log([[0.4, 0.1, 0.1], [0.1, 0.4, 0.1]])
    values = _values(measure(logp_RP, np.array([1, 1]), np.array([0, 1])))
    assert values["retrieval_accuracy"] == 1.0
    assert values["mi_seq_estimate"] == pytest.approx(LOG2)
    assert values["retrieval_chance_level"] == pytest.approx(1 / 3)


def test_one_prompt_defines_the_conditional_entropy_alone() -> None:
    metrics = measure(np.array([[-2.0], [-4.0]]), np.array([2, 2]), np.array([0, 0]))
    defined = {name for name, metric in metrics.items() if metric.value is not None}
    assert defined == {"conditional_entropy_est", "conditional_entropy_seq_est"}
    assert metrics["conditional_entropy_est"].value == 1.5
    assert metrics["conditional_entropy_est"].low is None
    assert metrics["mi_estimate"].reason == "one distinct prompt: nothing to tell apart"


def test_no_rows_defines_nothing() -> None:
    metrics = measure(np.empty((0, 4)), np.array([], dtype=int), np.array([], dtype=int))
    assert {metric.value for metric in metrics.values()} == {None}
    assert {metric.reason for metric in metrics.values()} == {"no scored rows"}


def test_near_equal_scores_give_a_small_negative_mi_and_an_exploding_zscore() -> None:
    # Own column 0.02 below three equal ones: the mixture is about 0.02 / 4 lower, the gap -0.015.
    # The marginals differ by 1e-6 only, so that the stabiliser 1e-3 alone divides.
    rng = np.random.default_rng(0)
    logp_RP = -50 + rng.uniform(-1e-6, 1e-6, (8, 4))
    own_R = np.repeat(np.arange(4), 2)
    logp_RP[np.arange(8), own_R] -= 0.02
    metrics = measure(logp_RP, np.ones(8, dtype=int), own_R)
    assert metrics["mi_seq_estimate"].value == pytest.approx(-0.015, abs=1e-4)
    assert metrics["mi_zscore"].value == pytest.approx(-15, abs=0.1)
    assert metrics["retrieval_accuracy"].value == 0.0
    # Among 4 of 4 would always be right.
    assert metrics["retrieval_accuracy@4"].value is None
    assert metrics["retrieval_skill"].value == pytest.approx(-1 / 3)


@pytest.mark.parametrize(
    ("logp_RP", "n_tokens_R", "own_R", "message"),
    [
        ([[-1.0, -2.0]], [1], [2], "outside 0..1"),
        ([[-1.0, -2.0]], [1], [-1], "outside 0..1"),
        ([[-1.0, -2.0]], [0], [0], "without scored tokens"),
        ([[-1.0, -math.inf]], [1], [0], "not finite"),
        ([[-1.0, math.nan]], [1], [0], "not finite"),
        # Neither one block nor two: x1 stands with x0 for the second row alone.
        ([[-1.0, -math.inf], [-1.0, -1.0]], [1, 1], [0, 1], "not finite"),
        ([[-1.0, -math.inf], [-1.0, -math.inf]], [1, 1], [0, 1], "not finite"),
        ([[-1.0, math.inf], [-math.inf, -1.0]], [1, 1], [0, 1], "not finite"),
        ([[-1.0, -2.0]], [1, 1], [0], "shapes do not fit"),
        ([[-1.0, -2.0]], [1, 1], [0, 0], "shapes do not fit"),
    ],
)
def test_refused(logp_RP: list, n_tokens_R: list, own_R: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        row_scores(np.array(logp_RP), np.array(n_tokens_R), np.array(own_R))


def test_ema_smooths_the_denominator() -> None:
    # s = 1, 3, 0: 1; 0.9 + 0.3 = 1.2; 1.08 + 0 = 1.08
    assert ema_std([1.0, 3.0, 0.0]).tolist() == pytest.approx([1.0, 1.2, 1.08])
    assert ema_std([]).tolist() == []


def test_per_prompt_mean_names_empty_prompts() -> None:
    mean_P = per_prompt_mean(np.array([1.0, 2.0]), np.array([1, 1]), 3)
    np.testing.assert_array_equal(mean_P, [np.nan, 1.5, np.nan])


def test_a_constant_text_is_at_chance_even_when_noise_breaks_its_ties() -> None:
    """One text, scored alike in every row: its rows agree on a best column, one prompt in eight."""
    noisy_P = -5.0 + 1e-6 * np.random.default_rng(0).normal(size=8)
    logp_RP = np.tile(noisy_P, (24, 1))
    metrics = measure(logp_RP, np.full(24, 4), np.repeat(np.arange(8), 3), resamples=200)
    assert metrics["retrieval_accuracy"].value == 1 / 8
    assert metrics["retrieval_skill"].value == 0.0


scores = st.tuples(st.integers(2, 10), st.integers(1, 12), st.integers(0, 2**32 - 1))


@settings(deadline=None)
@given(scores, st.sampled_from([0.0, 0.01, 1.0, 300.0]))
def test_bounds(shape: tuple[int, int, int], spread: float) -> None:
    columns, rows, seed = shape
    rng = np.random.default_rng(seed)
    logp_RP = -np.abs(rng.normal(400, spread, (rows, columns))).round(2)
    n_tokens_R, own_R = rng.integers(1, 500, rows), rng.integers(0, columns, rows)
    row = row_scores(logp_RP, n_tokens_R, own_R)
    log_p = math.log(columns)
    assert (row.matched_seq_R - row.marginal_seq_R <= log_p + 1e-9 * 400).all()
    assert (row.matched_R - row.marginal_R <= log_p / n_tokens_R + 1e-9 * 400).all()
    values = _values(measure(logp_RP, n_tokens_R, own_R, resamples=20))
    assert values["retrieval_skill"] <= 1.0 + 1e-12
    by_k = [values["retrieval_accuracy"]]
    by_k += [values[f"retrieval_accuracy@{k}"] for k in TOP_K if k < columns]
    assert by_k == sorted(by_k)
    assert all(0.0 <= accuracy <= 1.0 for accuracy in by_k)
    assert 0.0 < values["mi_p_value"] <= 1.0


@settings(deadline=None)
@given(scores, st.integers(1, 9))
def test_credits_of_all_columns_share_k_places(shape: tuple[int, int, int], k: int) -> None:
    columns, _, seed = shape
    logp_RP = np.tile(np.random.default_rng(seed).integers(0, 4, (1, columns)), (columns, 1))
    credit_P = retrieval_credit(logp_RP.astype(float), np.arange(columns), k=k)
    assert credit_P.sum() == pytest.approx(min(k, columns))
