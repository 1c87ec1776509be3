"""Steps as series: the smoothed z-score, segments, gaps, and the table."""

import numpy as np
import polars as pl
import pytest
from planted_runs import STEPS, S, around, run

from ragen_diag.timeline import Scorer, Timeline
from ragen_diag.timeline.points import Point


def with_marginals(**kinds) -> Timeline:
    std = around(1.5, 0.2, 21)
    gap = around(0.1, 0.01, 22)
    return run({"marginal_std": std, "mi_estimate": gap}, **kinds)


def smoothed_by_hand(timeline: Timeline, anew: set[int]) -> list[float]:
    """s(t) = 0.9 s(t-1) + 0.1 std(t), and z(t) = gap(t) / (s(t) + 0.001), as in RAGEN-2's code."""
    out, state = [], None
    for point in timeline.points:
        std = point.result.metrics["marginal_std"].value
        gap = point.result.metrics["mi_estimate"].value
        state = std if state is None or point.step in anew else 0.9 * state + 0.1 * std
        out.append(gap / (state + 1e-3))
    return out


def test_the_smoothed_zscore_is_that_of_the_public_code():
    timeline = with_marginals()
    found = [metric.value for metric in timeline.metrics["mi_zscore_ema"]]
    assert found == pytest.approx(smoothed_by_hand(timeline, set()))
    assert found[1] != pytest.approx(
        timeline.metrics["mi_estimate"][1].value
        / (timeline.metrics["marginal_std"][1].value + 1e-3)
    )


def test_nothing_is_smoothed_across_a_resume():
    timeline = with_marginals(resumes=(70, 120))
    found = [metric.value for metric in timeline.metrics["mi_zscore_ema"]]
    assert found == pytest.approx(smoothed_by_hand(timeline, {70, 120}))
    assert timeline.series("success_rate").segment_S.tolist() == [0] * 7 + [1] * 5 + [2] * 8


def rescored(timeline: Timeline, scorers: dict[int, tuple[str, int]]) -> Timeline:
    """With another scorer (path, lag) from some steps on."""
    points, now = [], ("a", 0)
    for point in timeline.points:
        now = scorers.get(point.step, now)
        scorer = Scorer(path=now[0], step=0, lag=now[1])
        points.append(
            Point(
                step=point.step,
                result=point.result,
                scorer=scorer,
                kept_share=point.kept_share,
            )
        )
    return Timeline(points=points)


def test_another_scorer_breaks_what_it_measures_and_nothing_else():
    timeline = rescored(run(), {0: ("a", 30), 100: ("b", 0)})
    assert timeline.marks.scorer_changes == (100,)
    assert timeline.series("retrieval_skill").segment_S.tolist() == [0] * 10 + [1] * 10
    assert timeline.series("reward_mean").segment_S.tolist() == [0] * S
    # Each step under its own checkpoint is no break at all.
    own = rescored(run(), {step: (f"step_{step}", 0) for step in STEPS})
    assert own.marks.scorer_changes == ()
    late = rescored(run(), {step: (f"step_{step - 5}", 5) for step in STEPS})
    assert late.marks.scorer_changes == ()


def test_entropy_is_the_policys_own_or_the_dumps():
    values = {
        "conditional_entropy_est": around(0.9, 0, 1),
        "rollout_entropy_est": around(0.4, 0, 1),
    }
    assert run(values, lag=0).metrics["policy_entropy"][3].value == pytest.approx(0.9)
    assert run(values, lag=30).metrics["policy_entropy"][3].value == pytest.approx(0.4)
    values["rollout_entropy_est"] = np.full(S, np.nan)
    unknown = run(values, lag=30).metrics["policy_entropy"][3]
    assert unknown.value is None and "neither" in unknown.reason


def test_gaps_are_where_steps_are_further_apart_than_usual():
    timeline = run()
    kept = [p for p in timeline.points if p.step not in (50, 60, 120)]
    assert Timeline(points=kept).marks.gaps == ((40, 70), (110, 130))
    assert timeline.marks.gaps == ()


def test_the_table_has_every_value_and_null_for_what_is_undefined():
    timeline = run(numerical=[3], history={"kl": {0: 0.1, 5: 0.2}})
    table = timeline.frame()
    assert table.filter(pl.col("metric") == "history/kl")["value"].to_list() == [0.1, 0.2]
    skill = table.filter(pl.col("metric") == "retrieval_skill").sort("step")
    assert skill.height == S and skill["value"][3] is None
    assert skill["value"][4] == timeline.points[4].result.metrics["retrieval_skill"].value
    assert not table["value"].is_nan().any()
