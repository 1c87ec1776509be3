"""The reward side: known vectors, variances that add up, and why groups are flat."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_diag.metrics.components import component_ranges, variance_kept
from ragen_diag.metrics.phantom import length_correlations, phantom_variance
from ragen_diag.metrics.reward import flat_share_by_chance, reward_signal
from ragen_diag.metrics.reward_groups import FLAT_REASONS, UNCOMPARED, RewardRows, group_table


def _rows(groups: dict[str, list[float]], **options: object) -> RewardRows:
    return RewardRows(
        reward_N=np.array([reward for rewards in groups.values() for reward in rewards], float),
        group_N=[group for group, rewards in groups.items() for _ in rewards],
        **options,
    )


def test_variances_of_interleaved_groups() -> None:
    # h = (-3, 3): mean 0, sample variance 18. m = (-2, 2): 0, 8. l = (-1, 1): 0, 2.
    rows = RewardRows(reward_N=np.array([-3.0, -2, 3, 2, -1, 1]), group_N=list("hmhmll"))
    assert [(row.group, row.n, row.mean, row.var) for row in group_table(rows)] == [
        ("h", 2, 0.0, 18.0),
        ("m", 2, 0.0, 8.0),
        ("l", 2, 0.0, 2.0),
    ]
    signal = reward_signal(rows)
    assert signal.in_group_reward_var == pytest.approx(28 / 3)
    assert signal.in_group_reward_std == pytest.approx((18**0.5 + 8**0.5 + 2**0.5) / 3)
    assert (signal.between_prompt_var, signal.within_prompt_var) == (0.0, pytest.approx(28 / 6))
    # Mean 28/3, deviations 26/3, -4/3, -22/3: squares sum to 1176/9, CV = sqrt(392/9) / (28/3).
    assert signal.cv_var == pytest.approx(392**0.5 / 28)
    # Stds are 3, 2, 1 times sqrt 2: CV = sqrt(2/3) / 2.
    assert signal.cv_std == pytest.approx((2 / 3) ** 0.5 / 2)
    assert signal.applicability == "likely_hurts"


def test_flat_groups_alone_carry_no_signal() -> None:
    signal = reward_signal(_rows({"a": [1, 1], "b": [2, 2]}))
    assert (signal.pooled_var, signal.between_prompt_var, signal.within_prompt_var) == (
        0.25,
        0.25,
        0.0,
    )
    assert (signal.cv_std, signal.applicability) == (None, "undefined")
    assert signal.reason == "no group has rewards that differ"
    assert [bucket.groups for bucket in signal.buckets] == [0] * 6
    assert signal.buckets[0].rv_mean is None


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.floats(-50, 50) | st.just(float("nan"))),
        min_size=1,
        max_size=40,
    )
)
@settings(deadline=None)
def test_between_and_within_add_up_to_pooled(pairs: list[tuple[str, float]]) -> None:
    rewards = np.array([reward for _, reward in pairs])
    signal = reward_signal(RewardRows(reward_N=rewards, group_N=[group for group, _ in pairs]))
    if np.isnan(rewards).all():
        assert (signal.pooled_var, signal.mean, signal.reason) == (None, None, "no finite reward")
        return
    assert signal.pooled_var == pytest.approx(np.nanvar(rewards), abs=1e-9)
    parts = signal.between_prompt_var + signal.within_prompt_var
    assert parts == pytest.approx(signal.pooled_var, abs=1e-9)
    counts = signal.flat_groups
    told = [reason for reason in FLAT_REASONS if reason not in UNCOMPARED]
    assert counts["flat"] == sum(counts[reason] for reason in told)
    assert counts["compared"] == counts["groups"] - sum(counts[reason] for reason in UNCOMPARED)
    varying = sum(bucket.groups for bucket in signal.buckets)
    assert counts["flat"] + varying == counts["compared"]
    assert counts["groups"] == len({group for group, _ in pairs})


@pytest.mark.parametrize(
    ("rewards", "flat_exactly", "flat_loosely"),
    [
        ([0.1] * 7, True, True),
        ([0.6667] * 8, True, True),
        ([0.66666, 0.66667, 0.66667, 0.66666], False, True),
        ([1e6] * 4, True, True),
        ([1e6, 1e6 + 1, 1e6, 1e6], False, True),
    ],
)
def test_flat_is_a_spread_within_tolerance(
    rewards: list[float], flat_exactly: bool, flat_loosely: bool
) -> None:
    for rtol, flat in ((1e-9, flat_exactly), (1e-4, flat_loosely)):
        (row, _) = group_table(_rows({"g": rewards, "other": [0, 5]}, rtol=rtol))
        assert (row.flat is not None) == flat
        assert (row.var == 0.0) == flat


def test_each_reason_for_a_flat_group() -> None:
    groups = {
        "varies": [0, 1],
        "solved": [1, 1],
        "failed": [0, 0],
        "middle": [0.5, 0.5],
        "same text": [1, 1],
        "cut": [0, 0],
        "single": [1],
        "one left": [1, np.nan],
        "unscored": [np.nan, np.inf],
    }
    rows = _rows(groups)
    texts = [f"text {row}" for row in range(len(rows.group_N))]
    same, cut = rows.members()["same text"], rows.members()["cut"]
    texts[same[0]], texts[same[1]] = "go left", " go  left\n"
    truncated_N = np.isin(np.arange(len(texts)), cut)
    rows = _rows(groups, texts_N=texts, truncated_N=truncated_N)
    assert {row.group: row.flat for row in group_table(rows)} == {
        "varies": None,
        "solved": "all_solved",
        "failed": "all_failed",
        "middle": "mid_value",
        "same text": "identical_texts",
        "cut": "truncated",
        "single": "singleton",
        "one left": "singleton",
        "unscored": "unscored",
    }
    bucket = {row.group: row.bucket for row in group_table(rows)}
    assert (bucket["varies"], bucket["solved"], bucket["single"]) == ("Q1", "flat", None)


def test_success_component_says_what_solved_is() -> None:
    # Solved texts that lost half their reward by length, failed ones that got a bonus.
    groups = {"a": [0.5, 0.5], "b": [0.7, 0.7], "c": [0.1, 0.9], "d": [0.5, 0.5]}
    success = np.array([1, 1, 0, 0, 0, 1, 0, 1.0])
    table = group_table(_rows(groups, success_N=success))
    assert [row.flat for row in table] == ["all_solved", "all_failed", None, "mid_value"]


def test_constant_batch_cannot_tell_solved_from_failed() -> None:
    signal = reward_signal(_rows({"a": [0, 0], "b": [0, 0, 0]}))
    assert signal.flat_groups["constant_batch"] == 2
    assert signal.flat_groups["all_failed"] == 0
    assert signal.flat_groups["flat_share_by_chance"] is None
    assert signal.reason == "every reward of the batch is 0"


@pytest.mark.parametrize(("size", "by_chance"), [(2, 0.7048), (8, 0.2044)])
def test_small_groups_are_flat_by_chance(size: int, by_chance: float) -> None:
    # Success rate 0.18: 0.18^2 + 0.82^2 = 0.0324 + 0.6724; 0.82^8 = 0.2044, 0.18^8 = 1e-6.
    rewards = (np.random.default_rng(0).random((4000, size)) < 0.18).astype(float)
    groups = [str(group) for group in np.repeat(np.arange(4000), size)]
    flat = reward_signal(RewardRows(reward_N=rewards.ravel(), group_N=groups)).flat_groups
    assert flat["flat_share_by_chance"] == pytest.approx(by_chance, abs=0.02)
    assert flat["flat_share"] == pytest.approx(by_chance, abs=0.03)


def test_chance_needs_two_reward_values() -> None:
    assert flat_share_by_chance(np.array([0.0, 0.5, 1.0]), [3]) is None
    # -0.1 and 1 are two values as well; a singleton is flat for certain.
    assert flat_share_by_chance(np.array([-0.1, 1.0, 1.0]), [2, 1]) == pytest.approx(
        ((2 / 3) ** 2 + (1 / 3) ** 2 + 1) / 2
    )


def test_buckets_rise_and_the_first_take_the_remainder() -> None:
    # Eight groups (0, s) with variance s^2 / 2, given in falling order.
    signal = reward_signal(_rows({f"g{s}": [0, s] for s in range(8, 0, -1)}))
    assert [bucket.name for bucket in signal.buckets] == ["Q1", "Q2", "Q3", "Q4", "Q5", "Q6"]
    assert [bucket.groups for bucket in signal.buckets] == [2, 2, 1, 1, 1, 1]
    first = signal.buckets[0]
    assert (first.rv_min, first.rv_mean, first.rv_max) == pytest.approx((0.5, 1.25, 2.0))
    assert first.std_mean == pytest.approx((0.5**0.5 + 2**0.5) / 2)
    assert signal.buckets[5].rv_mean == pytest.approx(32.0)


def test_equal_variances_keep_their_order_and_flat_groups_stay_out() -> None:
    table = group_table(_rows({"a": [0, 1], "flat": [1, 1], "b": [1, 0], "c": [0, 1]}))
    assert [(row.group, row.bucket) for row in table] == [
        ("a", "Q1"),
        ("flat", "flat"),
        ("b", "Q2"),
        ("c", "Q3"),
    ]
    many = group_table(_rows({f"g{g}": [0, 1] for g in range(60)}))
    assert [row.bucket for row in many] == [f"Q{g // 10 + 1}" for g in range(60)]


def test_cv_counts_flat_groups() -> None:
    # One of 32 groups varies: mean v / 32, population std v sqrt(31) / 32.
    groups = {str(g): [1.0, 1.0] for g in range(31)} | {"x": [0.0, 1.0]}
    signal = reward_signal(_rows(groups))
    assert signal.cv_var == pytest.approx(31**0.5)
    assert signal.applicability == "likely_helps"


@pytest.mark.parametrize(
    ("stds", "expected"),
    # Two groups with stds 1 - c and 1 + c have CV c.
    [(0.49, "likely_hurts"), (0.5, "unclear"), (0.75, "unclear"), (0.99, "unclear")],
)
def test_applicability(stds: float, expected: str) -> None:
    low, high = (1 - stds) * 2**0.5, (1 + stds) * 2**0.5
    signal = reward_signal(_rows({"a": [0, low], "b": [0, high]}))
    assert signal.cv_std == pytest.approx(stds)
    if stds != 0.5:  # the cut itself is subject to rounding here
        assert signal.applicability == expected


def test_components() -> None:
    nan = float("nan")
    parts = {
        "success": np.array([0.0, 1.0, nan]),
        "format": np.array([0.5, 0.5, 0.5]),
        "none": np.array([nan, nan, nan]),
    }
    ranges = component_ranges(parts)
    assert set(ranges) == {"success", "format"}
    assert (ranges["success"].n, ranges["success"].constant) == (2, False)
    assert (ranges["format"].low, ranges["format"].constant) == (0.5, True)


def test_variance_kept() -> None:
    group_N = ["a"] * 4
    first, second = np.array([0.0, 0, 1, 1]), np.array([0.0, 1, 0, 1])
    uncorrelated = {"x": first, "y": second}
    assert variance_kept(first + second, uncorrelated, group_N) == pytest.approx(1.0)
    assert variance_kept(2 * first, {"x": first, "y": first}, group_N) == pytest.approx(2.0)
    assert variance_kept(first, uncorrelated, group_N) is None
    constant = {"x": first, "y": np.ones(4)}
    assert variance_kept(first + 1, constant, group_N) is None


def test_different_texts_of_a_group_stand_beside_its_variance() -> None:
    texts = ["go", "go", "go", "up", "go", " go", "go\n", "up", "x", None, "x", "y"]
    rows = _rows({group: [0, 0, 0, 1] for group in "abc"}, texts_N=texts)
    found = {row.group: (row.distinct_exact, row.distinct, row.var) for row in group_table(rows)}
    assert found == {
        "a": (2 / 4, 2 / 4, 0.25),
        "b": (4 / 4, 2 / 4, 0.25),
        "c": (2 / 3, 2 / 3, 0.25),  # a response that the dump lacks is no text
    }
    bare = group_table(_rows({"a": [0, 1]}))[0]
    assert (bare.distinct_exact, bare.distinct) == (None, None)


def test_responses_that_are_not_there_are_no_equal_texts() -> None:
    table = group_table(_rows({"a": [0, 0], "b": [1, 1]}, texts_N=[None, None, "x", None]))
    assert [row.flat for row in table] == ["all_failed", "all_solved"]
    assert [row.distinct for row in table] == [None, None]


def test_median_group_size_counts_finite_rewards() -> None:
    signal = reward_signal(_rows({"a": [0, 1], "b": [0, np.nan, np.nan], "c": [0, 1, 1, 1]}))
    assert signal.median_group_size == 2.0


def test_phantom_variance_by_hand() -> None:
    # a fails and is paid 0..0.4 for length: squares 0.04 + 0.04 = 0.08. b is solved, b's format
    # pays 0.2 once: 0.02. c differs in success: 0.5. d is flat. e's success is unknown: 0.5.
    groups = {"a": [0, 0.4], "b": [1, 1.2], "c": [0, 1], "d": [0, 0], "e": [0, 1]}
    success = np.array([0, 0, 1, 1, 0, 1, 0, 0, 0, np.nan])
    found = phantom_variance(_rows(groups, success_N=success))
    assert found is not None
    assert (found.groups, found.failed, found.varying) == (2, 1, 4)
    assert found.share == pytest.approx((0.08 + 0.02) / (0.08 + 0.02 + 0.5 + 0.5))


def test_no_phantom_without_success_or_differences() -> None:
    assert phantom_variance(_rows({"a": [0, 1]})) is None
    assert phantom_variance(_rows({"a": [0, 0]}, success_N=np.zeros(2))) is None
    assert phantom_variance(_rows({"a": [np.nan]}, success_N=np.zeros(1))) is None


def test_length_correlation_by_hand() -> None:
    groups = {
        "rises": [0.1, 0.2, 0.9],
        "falls": [1, 0, -1],
        # Ranks 1.5, 1.5, 3.5, 3.5 against 1, 3, 2, 4: 2 / sqrt(4 * 5).
        "ties": [0, 0, 1, 1],
        "flat": [1, 1],
        "one length": [0, 1],
        # The third is unscored, the fourth of unknown length.
        "partly": [0, 1, np.nan, 5],
    }
    lengths = [5, 7, 1000, 5, 7, 9, 10, 30, 20, 40, 1, 2, 6, 6, 3, 4, 100, np.nan]
    found = length_correlations(_rows(groups), np.array(lengths, float))
    expected = {"rises": 1.0, "falls": -1.0, "ties": 2 / 20**0.5, "partly": 1.0}
    assert found == {group: pytest.approx(value) for group, value in expected.items()}


def test_float_noise_is_no_order_of_rewards() -> None:
    # 0.1 + 0.2 is 4e-17 above 0.3; ranks 1, 2.5, 2.5 against 1, 2, 3: 1.5 / sqrt(1.5 * 2).
    noisy = _rows({"a": [0, 0.1 + 0.2, 0.3]})
    found = length_correlations(noisy, np.array([1.0, 2, 3]))
    assert found["a"] == pytest.approx(1.5 / 3**0.5)
