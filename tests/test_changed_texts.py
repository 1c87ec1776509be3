"""The prompts whose responses lost most of their hold on the input."""

import polars as pl

from ragen_diag.postmortem.changed import changed_prompts


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


def test_the_responses_shown_are_the_typical_ones():
    before = table([("a", gap) for gap in (0.0, 9.0, 2.0, 1.0)])
    # The mean is 3; the nearest are 2 and 1, shown in the order of the table.
    (pair,) = changed_prompts(before, before)
    assert pair.gap_before == 3.0
    assert [sample.response_id for sample in pair.before] == ["r2", "r3"]


def test_other_prompts_are_shown_side_by_side():
    before = table([(f"before {n}", float(n)) for n in range(6)])
    after = table([(f"after {n}", float(-n)) for n in range(6)])
    pairs = changed_prompts(before, after)
    assert [pair.kind for pair in pairs] == ["least_grounded"] * 3 + ["most_grounded"] * 2
    assert all(pair.prompt is None for pair in pairs)
    assert [pair.before[0].prompt for pair in pairs] == [f"before {n}" for n in (0, 1, 2, 5, 4)]
    assert [pair.after[0].prompt for pair in pairs] == [f"after {n}" for n in (5, 4, 3, 0, 1)]


def test_rows_that_were_not_scored_are_not_looked_at():
    before = table([("a", 1.0), ("a", None), ("b", None)])
    (pair,) = changed_prompts(before, before)
    assert pair.prompt == "a" and [s.response_id for s in pair.before] == ["r0"]
    nothing = table([("a", None)])
    assert changed_prompts(nothing, before) == changed_prompts(before, nothing) == []
