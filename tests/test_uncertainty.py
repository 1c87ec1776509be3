"""Intervals and p-values: against naive loops, by enumeration, and by their coverage."""

import math
from itertools import permutations
from statistics import NormalDist

import numpy as np
import pytest

from ragen_diag.metrics.uncertainty import bootstrap, interval, per_prompt_means, permutation_test


def test_resamples_are_those_of_a_naive_loop() -> None:
    rng = np.random.default_rng(5)
    own_R = np.array([2, 0, 0, 7, 2, 2, 7, 9])
    values_R = rng.normal(-400, 1, len(own_R))
    draws = bootstrap(own_R, resamples=50, seed=3)
    prompts = np.unique(own_R)
    by_prompt, by_row, spread = [], [], []
    for drawn_C in draws.draws_BC.astype(int):
        chosen = [
            values_R[own_R == p] for p, n in zip(prompts, drawn_C, strict=True) for _ in range(n)
        ]
        by_prompt.append(np.mean([values.mean() for values in chosen]))
        by_row.append(np.concatenate(chosen).mean())
        spread.append(np.concatenate(chosen).std())
    np.testing.assert_allclose(draws.mean_over_prompts(values_R), by_prompt, rtol=1e-12)
    np.testing.assert_allclose(draws.mean_over_rows(values_R), by_row, rtol=1e-12)
    np.testing.assert_allclose(draws.std_over_rows(values_R), spread, rtol=1e-9, atol=1e-9)
    assert by_prompt[0] == np.mean([values_R[own_R == p].mean() for p in prompts])


def test_draws_are_whole_prompts_seeded_and_as_many_as_there_are() -> None:
    one, other = (bootstrap([0, 0, 1, 2], resamples=200, seed=seed).draws_BC for seed in (1, 2))
    assert (one.sum(axis=1) == 3).all()
    assert (one != other).any()
    np.testing.assert_array_equal(one, bootstrap([0, 0, 1, 2], resamples=200, seed=1).draws_BC)
    # A prompt is drawn n times with binomial(3, 1/3): mean 1, variance 2/3.
    assert one[1:].mean() == 1.0
    assert one[1:, 0].var() == pytest.approx(2 / 3, rel=0.3)


@pytest.mark.parametrize("prompts", [4, 8, 24])
def test_interval_covers_what_it_should(prompts: int) -> None:
    """True mean 0; prompts with effects of their own and 1 to 8 noisy rows each."""
    rng = np.random.default_rng(prompts)
    covered = 0
    for trial in range(300):
        own_R = np.repeat(np.arange(prompts), rng.integers(1, 9, prompts))
        values_R = rng.normal(0, 1, prompts)[own_R] + rng.normal(0, 0.5, len(own_R))
        draws = bootstrap(own_R, resamples=1000, seed=trial)
        low, high = interval(draws.mean_over_prompts(values_R), prompts)
        covered += low <= 0.0 <= high
    # Nominal 0.95, standard error 0.013. Four prompts have 35 distinct resamples to reach with.
    assert (0.85 if prompts == 4 else 0.91) <= covered / 300 <= 0.985


def test_percentiles_expand_for_few_prompts() -> None:
    """Normal resamples: the interval of n prompts is sqrt(n/(n-1)) t times their spread.

    t of 7 and 30 degrees of freedom is 2.3646 and 2.0423 in any table.
    """
    stat_B = np.array([NormalDist().inv_cdf((i + 0.5) / 20_000) for i in range(20_000)])
    for prompts, t in ((8, 2.3646), (31, 2.0423)):
        low, high = interval(stat_B, prompts)
        expected = math.sqrt(prompts / (prompts - 1)) * t
        assert (low, high) == pytest.approx((-expected, expected), rel=0.01)


def test_one_prompt_has_no_interval() -> None:
    draws = bootstrap([4, 4, 4])
    metric = draws.metric(draws.mean_over_prompts(np.array([1.0, 2.0, 3.0])), unit="nats")
    assert (metric.value, metric.low, metric.high, metric.unit, metric.n) == (
        2.0,
        None,
        None,
        "nats",
        3,
    )


def test_nothing_to_resample_is_refused() -> None:
    with pytest.raises(ValueError, match="no response"):
        bootstrap([])


@pytest.mark.parametrize("columns", [2, 3, 6])
def test_few_prompts_are_enumerated(columns: int) -> None:
    rng = np.random.default_rng(columns)
    value_PP = rng.normal(0, 1, (columns, columns)) + np.eye(columns)
    observed = np.mean([value_PP[c, c] for c in range(columns)])
    dealt = [
        np.mean([value_PP[c, label] for c, label in enumerate(labels)])
        for labels in permutations(range(columns))
    ]
    test = permutation_test(value_PP, np.arange(columns))
    assert test.p == np.mean([mean >= observed - 1e-12 for mean in dealt])
    assert (test.permutations, test.exact) == (len(dealt), True)


def test_more_prompts_are_drawn_and_never_give_zero() -> None:
    test = permutation_test(10 * np.eye(12), np.arange(12), resamples=500)
    assert (test.p, test.permutations, test.exact) == (1 / 501, 500, False)


def test_drawn_agrees_with_enumerated() -> None:
    # Seven prompts, 5040 dealings, by hand; drawn ones within three standard errors.
    rng = np.random.default_rng(2)
    value_PP = rng.normal(0, 1, (7, 7)) + 0.3 * np.eye(7)
    observed = np.trace(value_PP) / 7
    dealt = [value_PP[np.arange(7), labels].mean() for labels in permutations(range(7))]
    exact = np.mean(np.array(dealt) >= observed - 1e-12)
    drawn = permutation_test(value_PP, np.arange(7), resamples=4000, seed=1).p
    assert drawn == pytest.approx(exact, abs=3 * np.sqrt(exact * (1 - exact) / 4000) + 1e-3)


def test_p_values_are_uniform_when_texts_ignore_prompts() -> None:
    """Rows of a group are alike; a test of rows instead of groups would reject far too often."""
    rng = np.random.default_rng(7)
    rejected = 0
    for trial in range(200):
        own_R = np.repeat(np.arange(8), 16)
        group_PP = rng.normal(0, 1, (8, 8))
        value_RP = group_PP[own_R] + rng.normal(0, 0.1, (128, 8))
        value_CP, own_C = per_prompt_means(value_RP, own_R)
        rejected += permutation_test(value_CP, own_C, resamples=199, seed=trial).p <= 0.05
    assert rejected / 200 <= 0.10


def test_per_prompt_means_skip_columns_without_rows() -> None:
    means_CP, own_C = per_prompt_means(
        np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [5.0, 5.0, 5.0]]), np.array([2, 2, 0])
    )
    assert own_C.tolist() == [0, 2]
    assert means_CP.tolist() == [[5.0, 5.0, 5.0], [2.0, 2.0, 2.0]]
