"""Onsets, lead times and correlations on series whose history was written by hand."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import noise, ramp, series

from ragen_diag.trends.correlation import rank_correlation
from ragen_diag.trends.lead import lead_time
from ragen_diag.trends.odd import odd_steps
from ragen_diag.trends.onset import Material, find_onset
from ragen_diag.trends.ranks import ranks

QUARTER = Material(relative=0.25, absolute=0.0)
STEPS = np.arange(16) * 10
WOBBLE = np.array([0.01, -0.02, 0.015, -0.01, 0.0, 0.02, -0.015, 0.005] * 2)


def falling(at: int):
    return np.where(np.arange(16) < at, 0.8, 0.3) + WOBBLE


def find(value, *, direction=-1, material=QUARTER, step=STEPS, **kinds):
    return find_onset(series(step, value, **kinds), direction=direction, material=material, seed=0)


def test_a_step_is_dated_between_the_steps_it_fell_between():
    onset = find(falling(7))
    assert (onset.kind, onset.last_good, onset.first_bad, onset.ends) == ("sudden", 60, 70, 70)
    assert onset.before == pytest.approx(0.8, abs=0.01)
    assert onset.after == pytest.approx(0.3, abs=0.01)
    assert onset.draws.min() > 60 and onset.draws.max() <= 70


def test_a_slope_begins_after_its_last_level_step():
    onset = find(0.8 - 0.6 * ramp(16, 4, 12) + WOBBLE)
    assert onset.kind == "gradual"
    assert onset.last_good <= 40 < onset.first_bad <= 80
    assert onset.ends == pytest.approx(120, abs=20)


def test_a_rise_is_no_fall_and_a_small_fall_no_onset():
    assert find(1.1 - falling(7)).kind == "none"
    small = find(np.where(np.arange(16) < 7, 0.8, 0.65) + WOBBLE)
    assert small.kind == "none" and small.reason == "too small a movement"
    assert small.p_value < 0.01
    assert small.before - small.after == pytest.approx(0.15, abs=0.02)


def test_either_direction_finds_both():
    assert find(falling(7), direction=0).after < find(falling(7), direction=0).before
    up = find(1.1 - falling(7), direction=0)
    assert up.kind == "sudden" and up.after > up.before


@pytest.mark.parametrize("odd", [0, 3, 11, 15])
def test_one_odd_step_is_left_aside_and_named(odd):
    value = falling(7)
    value[odd] += 0.45 if odd > 7 else -0.45
    onset = find(value)
    assert (onset.last_good, onset.first_bad) == (60, 70)
    assert onset.odd_steps == (odd * 10,)


def test_a_last_step_that_falls_alone_is_no_onset_yet():
    value = 0.8 + WOBBLE
    value[-1] = 0.2
    assert find(value).kind == "none"
    value[-2] = 0.2
    assert find(value).kind in ("sudden", "unclear")


def test_gaps_widen_the_interval_and_no_step_inside_them_is_named():
    keep = np.array([place for place in range(16) if place not in (6, 7, 8)])
    onset = find(falling(7)[keep], step=STEPS[keep])
    assert (onset.last_good, onset.first_bad) == (50, 90)


def test_a_fall_counts_from_the_height_that_was_reached():
    value = np.r_[np.linspace(0.1, 0.6, 8), [0.6] * 4, [0.35] * 6]
    value = value + np.resize(WOBBLE, 18)
    onset = find(value, step=np.arange(18) * 10)
    assert onset.before == pytest.approx(0.6, abs=0.03)
    assert onset.last_good <= 110 < onset.first_bad <= 130


def test_undefined_to_the_end_is_lost_unless_it_moved_before():
    value = 0.8 + WOBBLE
    value[10:] = np.nan
    onset = find(value)
    assert (onset.kind, onset.last_good, onset.first_bad) == ("lost", 90, 100)
    assert onset.draws.min() > 90 and onset.draws.max() == 100
    moved = falling(4)
    moved[12:] = np.nan
    assert find(moved).kind == "sudden"
    value[10:] = 0.8
    value[-1] = np.nan
    assert find(value).kind == "none"


def test_what_overflows_is_lost_and_stops_nothing():
    value = 0.2 + WOBBLE / 10
    value[12:] = 1e308
    onset = find(value, direction=1)
    assert (onset.kind, onset.last_good, onset.first_bad) == ("lost", 110, 120)
    value[12:] = [1e38, -1e60, 1e90, np.inf]
    assert find(value, direction=1).kind != "too_few"


def test_too_few_steps_say_how_many_it_takes():
    onset = find([0.8, 0.8, 0.3, 0.3, 0.3], step=[0, 1, 2, 3, 4])
    assert onset.kind == "too_few"
    assert onset.reason == "defined at 5 steps; 6 are needed"


def test_a_constant_series_has_no_onset_and_no_warning():
    assert find(np.zeros(16)).kind == "none"
    assert find(np.r_[np.zeros(8), np.ones(8)], direction=1).first_bad == 80


def test_a_long_series_is_dated_to_its_blocks():
    generator = np.random.default_rng(3)
    value = 0.8 - 0.5 * ramp(1000, 599, 600) + noise(generator, 1000, 0.5, 0.05)
    onset = find(value, step=np.arange(1000))
    assert onset.last_good < 600 <= onset.first_bad
    assert onset.first_bad - onset.last_good <= 40


def test_the_same_series_in_another_unit_turns_at_the_same_steps():
    one, other = find(falling(9)), find(1000 * falling(9))
    assert (one.last_good, one.first_bad, one.p_value) == (
        other.last_good,
        other.first_bad,
        other.p_value,
    )
    assert other.after == pytest.approx(1000 * one.after)


@given(st.integers(3, 12), st.integers(0, 5000))
def test_shifting_the_steps_shifts_the_onset(at, shift):
    one, other = find(falling(at)), find(falling(at), step=STEPS + shift)
    assert (other.last_good, other.first_bad) == (one.last_good + shift, one.first_bad + shift)


def test_nothing_is_differenced_across_a_resume():
    # Two segments at their own levels: the only large step is the resume's.
    value = np.where(np.arange(16) < 8, 0.5, 0.9)
    segment = np.where(np.arange(16) < 8, 0, 1)
    flat = odd_steps(value, segment)
    assert not flat.any()
    spoiled = value.copy()
    spoiled[7] = 0.1
    assert not odd_steps(spoiled, segment)[8]


def test_lead_is_the_distance_and_half_where_nothing_tells_them_apart():
    early, late = find(falling(4)), find(falling(9))
    lead = lead_time(early, late)
    assert lead.low <= 50 <= lead.high and lead.steps == pytest.approx(50, abs=5)
    assert lead.probability == 1.0
    assert lead_time(late, early).steps == pytest.approx(-lead.steps, abs=1)
    assert lead_time(early, early).probability == pytest.approx(0.5, abs=0.02)
    nothing = lead_time(early, find(0.8 + WOBBLE))
    assert (nothing.steps, nothing.probability) == (None, None)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_ranks_agree_with_polars(values):
    expected = pl.Series(values).rank("average").to_numpy() - 1
    assert ranks(np.array(values, dtype=np.float64)) == pytest.approx(expected)


def test_rank_correlation_agrees_with_polars_and_its_interval_with_fieller():
    generator = np.random.default_rng(5)
    x = generator.standard_normal(40)
    y = 0.7 * x + generator.standard_normal(40)
    found = rank_correlation(x, y, np.zeros(40, dtype=np.int64))
    expected = pl.DataFrame({"x": x, "y": y}).select(pl.corr("x", "y", method="spearman")).item()
    assert found.value == pytest.approx(expected)
    # Fieller et al. 1957: the z of a rank correlation has variance 1.06 / (n - 3).
    half = 1.959964 * (1.06 / (found.effective_n - 3)) ** 0.5
    assert np.arctanh(found.high) - np.arctanh(found.value) == pytest.approx(half)
    assert found.effective_n <= 40


def test_trends_that_only_share_their_slowness_are_worth_few_steps():
    line = np.arange(30.0)
    # Lag-one autocorrelation of the ranks of a line of 30: 1 - 3 / 30 + ..., by definition.
    centred = line - line.mean()
    lag = float((centred[1:] * centred[:-1]).sum() / (centred @ centred))
    found = rank_correlation(line, -line, np.zeros(30, dtype=np.int64))
    assert found.value == -1.0
    assert found.effective_n == pytest.approx(30 * (1 - lag**2) / (1 + lag**2))
    short = rank_correlation(line[:8], line[:8], np.zeros(8, dtype=np.int64))
    assert short.low is None or short.low < 1


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([1.0, 2, 3], [1.0, 2, 3], "both defined at 3 steps; 6 are needed"),
        ([1.0] * 7, [1.0, 2, 3, 4, 5, 6, 7], "one of the two never changes"),
        ([1.0, 2, 3, 4, 5, 6, np.nan], [np.nan, 2, 3, 4, 5, 6, 7], "both defined at 5 steps"),
    ],
)
def test_no_correlation_has_its_reason(x, y, reason):
    found = rank_correlation(np.array(x), np.array(y), np.zeros(len(x), dtype=np.int64))
    assert found.value is None and found.reason.startswith(reason)
