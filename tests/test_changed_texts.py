"""The prompts whose responses lost most of their hold on the input."""

import polars as pl
import pytest

from ragen_diag.postmortem.changed import Sample, changed_prompts


def table(rows) -> pl.DataFrame:
    """(prompt, gap) per response, in order; a gap of None was not scored."""
    return pl.DataFrame(
        {
            "response_id": [f"r{n}" for n in range(len(rows))],
            "prompt": [prompt for prompt, _ in rows],
            "response": [f"text {n}" for n in range(len(rows))],
            "reasoning": [f"text {n}" for n in range(len(rows))],
            "reward": [0.5] * len(rows),
            "matched": [None if gap is None else gap - 10.0 for _, gap in rows],
            "marginal": [-10.0] * len(rows),
        },
        schema_overrides={"matched": pl.Float64},
    )


def test_shared_prompts_by_how_far_they_fell():
    before = table([(p, 3.0) for p in "abcdef"])
    after = table([("a", 2.9), ("b", 0.0), ("c", 1.0), ("d", 3.5), ("e", 2.0), ("f", 0.5)])
    pairs = changed_prompts(before, after)
    # Falls of 3, 2.5, 2, 1 and 0.1; the rise of d has no place among five.
    assert [pair.prompt for pair in pairs] == ["b", "f", "c", "e", "a"]
    assert (pairs[0].gap_before, pairs[0].gap_after) == (3.0, 0.0)
    assert {pair.kind for pair in pairs} == {"same_prompt"}


def test_a_fall_is_measured_from_where_the_prompt_stood():
    before, after = table([("low", 1.0), ("high", 9.0)]), table([("low", 0.0), ("high", 5.0)])
    assert [pair.prompt for pair in changed_prompts(before, after)] == ["high", "low"]


def test_equal_falls_keep_the_order_of_before():
    before, after = table([(p, 1.0) for p in "cab"]), table([(p, 0.0) for p in "abc"])
    assert [pair.prompt for pair in changed_prompts(before, after)] == ["c", "a", "b"]


def test_all_that_one_step_has_are_enough_to_be_the_same_prompts():
    before, after = table([(p, 1.0) for p in "abcdefg"]), table([("f", 0.0), ("b", 0.5)])
    pairs = changed_prompts(before, after)
    assert [(pair.kind, pair.prompt) for pair in pairs] == [("same_prompt", p) for p in "fb"]


def test_the_responses_shown_are_the_typical_ones():
    before = table([("a", gap) for gap in (0.0, 9.0, 2.0, 1.0)])
    # The mean is 3; the nearest are 2 and 1, shown in the order of the table.
    (pair,) = changed_prompts(before, before)
    assert pair.gap_before == 3.0
    assert [sample.response_id for sample in pair.before] == ["r2", "r3"]
    # Here the mean is 4, and 6 is farther from it than 3.
    (pair,) = changed_prompts(table([("a", gap) for gap in (6.0, -1.0, 7.0, 6.0, 2.0)]), before)
    assert [sample.gap for sample in pair.before] == [6.0, 6.0]
    (pair,) = changed_prompts(table([("a", gap) for gap in (6.0, 0.0, 3.0)]), before)
    assert [sample.gap for sample in pair.before] == [6.0, 3.0]


def test_a_response_is_shown_as_it_is():
    before = table([("a", 1.5)]).with_columns(
        response=pl.lit("<think>\x1b[2J</think> up"),
        reasoning=pl.lit("\x1b[2J"),
        reward=pl.lit(None, dtype=pl.Float64),
    )
    (pair,) = changed_prompts(before, table([("a", 1.0)]))
    assert pair.before == (Sample("r0", "a", "<think>\x1b[2J</think> up", "\x1b[2J", None, 1.5),)
    assert pair.after == (Sample("r0", "a", "text 0", "text 0", 0.5, 1.0),)


def test_other_prompts_are_shown_side_by_side():
    before = table([(f"before {n}", float(n)) for n in range(6)])
    after = table([(f"after {n}", float(-n)) for n in range(6)])
    pairs = changed_prompts(before, after)
    assert [pair.kind for pair in pairs] == ["least_grounded"] * 3 + ["most_grounded"] * 2
    assert all(pair.prompt is None for pair in pairs)
    assert [pair.before[0].prompt for pair in pairs] == [f"before {n}" for n in (0, 1, 2, 5, 4)]
    assert [pair.after[0].prompt for pair in pairs] == [f"after {n}" for n in (5, 4, 3, 0, 1)]


@pytest.mark.parametrize(("prompts", "least", "most"), [(1, 1, 0), (2, 1, 1), (3, 2, 1), (9, 3, 2)])
def test_no_prompt_is_shown_as_least_and_as_most_grounded(prompts, least, most):
    before = table([(f"before {n}", float(n)) for n in range(prompts)])
    after = table([(f"after {n}", float(n)) for n in range(9)])
    pairs = changed_prompts(before, after)
    assert [pair.kind for pair in pairs] == ["least_grounded"] * least + ["most_grounded"] * most
    shown = [pair.before[0].prompt for pair in pairs]
    assert len(set(shown)) == len(shown)


def test_a_few_shared_of_many_are_not_the_same_prompts():
    before = table([(p, 1.0) for p in "abcdefg"])
    after = table([(p, 0.0) for p in "abcdxyz"])
    pairs = changed_prompts(before, after)
    assert {pair.kind for pair in pairs} == {"least_grounded", "most_grounded"}


def test_rows_that_were_not_scored_are_not_looked_at():
    before = table([("a", 1.0), ("a", None), ("b", None), (None, 1.0), ("a", float("inf"))])
    (pair,) = changed_prompts(before, before)
    assert pair.prompt == "a" and [s.response_id for s in pair.before] == ["r0"]
    nothing = table([("a", None)])
    assert changed_prompts(nothing, before) == changed_prompts(before, nothing) == []
