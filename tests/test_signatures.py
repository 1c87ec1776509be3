"""Planted histories are called by their names, with their steps, and calm ones are left alone."""

import numpy as np
import pytest
from planted_runs import STEPS, S, around, before_after, calm, run, told

from ragen_diag.judging.findings import finding
from ragen_diag.postmortem.model import PostMortem

GROWTH = np.array([1.0] * 10 + [1.6**n for n in range(1, S - 9)])


def codes(told_: PostMortem) -> dict[str, str]:
    return {held.code: held.confidence for held in told_.signatures}


def onset(told_: PostMortem, metric: str, direction: int):
    return next(o for o in told_.onsets if (o.metric, o.direction) == (metric, direction))


def fall(name: str, to: float, last_good: int = 9) -> np.ndarray:
    level = calm()[name]
    return level * before_after(1.0, to, last_good)


def test_a_calm_run_has_no_onset_and_no_signature():
    story = told(run())
    assert (story.verdict, story.confidence, story.signatures) == ("no_onset", None, ())
    assert not any(o.happened for o in story.onsets if o.alarm)


def test_a_run_too_short_to_judge_says_so():
    timeline = run()
    short = type(timeline)(points=timeline.points[:4])
    assert told(short).verdict == "could_not_judge"


def test_template_collapse_comes_before_the_fall_of_success():
    timeline = run(
        {
            "retrieval_skill": fall("retrieval_skill", 0.1, 6),
            "mi_seq_estimate": fall("mi_seq_estimate", 0.1, 6),
            "success_rate": fall("success_rate", 0.5, 14),
        },
        regimes={7: "template_collapse"},
    )
    story = told(timeline)
    assert (story.verdict, story.confidence) == ("template_collapse", "clear")
    first = story.signatures[0]
    assert (first.last_good, first.first_bad) == (60, 70)
    lead = next(r for r in story.leads if r.second == "success_rate")
    assert lead.low <= 80 <= lead.high and lead.probability > 0.99
    assert any("of it)" in text for text in first.evidence), "entropy kept its level"


def test_mi_that_falls_while_reward_rises_is_not_excused_by_it():
    timeline = run(
        {
            "retrieval_skill": fall("retrieval_skill", 0.1),
            "mi_seq_estimate": fall("mi_seq_estimate", 0.1),
            "reward_mean": around(np.linspace(0.2, 0.8, S), 0.02, 5),
        },
        regimes={10: "template_collapse"},
    )
    found = codes(told(timeline))
    assert found["template_collapse"] == "clear"
    assert "reward_hacking" in found


def test_low_entropy_collapse():
    timeline = run(
        {
            name: fall(name, 0.05)
            for name in (
                "retrieval_skill",
                "mi_seq_estimate",
                "conditional_entropy_est",
                "rollout_entropy_est",
            )
        }
        | {"top1_share": calm()["top1_share"] + before_after(0, 0.8, 9)},
        regimes={10: "low_entropy_collapse"},
    )
    story = told(timeline)
    assert (story.verdict, story.confidence) == ("low_entropy_collapse", "clear")
    assert "template_collapse" not in codes(story)


def test_compressed_reasoning_is_no_collapse():
    entropy = {name: fall(name, 0.2) for name in ("conditional_entropy_est", "rollout_entropy_est")}
    story = told(run(entropy, regimes={10: "compressed_reasoning"}))
    assert (story.verdict, story.confidence) == ("compressed_reasoning", "clear")


def test_rising_entropy_with_garbled_text_is_an_explosion():
    """Entropy from 0.4 to 3.5 while reward falls: high entropy alone never earns "diverse"."""
    rising = around(0.4 + 3.1 * np.clip((np.arange(S) - 8) / 8, 0, 1), 0.02, 3)
    garbled = [finding("garbled_text", "void", "most characters are of several scripts")]
    timeline = run(
        {
            "conditional_entropy_est": rising,
            "rollout_entropy_est": rising,
            "retrieval_skill": fall("retrieval_skill", 0.1),
            "reward_mean": fall("reward_mean", 0.3),
        },
        regimes={13: "garbled_text"},
        findings=dict.fromkeys(range(13, S), garbled),
    )
    story = told(timeline)
    assert (story.verdict, story.confidence) == ("entropy_explosion", "clear")
    assert onset(story, "policy_entropy", 1).kind == "gradual"


def test_lost_format_is_dated_and_the_rest_is_void():
    timeline = run(
        {"valid_thinking_rate": before_after(0.99, 0.05, 9) + around(0, 0.004, 6)},
        regimes={10: "format_collapse"},
    )
    story = told(timeline)
    assert (story.verdict, story.confidence) == ("format_collapse", "clear")
    assert (story.signatures[0].last_good, story.signatures[0].first_bad) == (90, 100)


def test_length_explodes_into_repetition_apart_from_mi():
    """Median length 40 to 2,048, nine in ten at the cap, repetition: two onsets, not one."""
    timeline = run(
        {
            "response_length": around(np.clip(300 * GROWTH, 0, 4096), 5.0, 11),
            "truncated_share": np.clip(before_after(0.02, 0.9, 14) + around(0, 0.005, 7), 0, 1),
            "repetition": np.clip(before_after(0.03, 0.9, 13) + around(0, 0.005, 8), 0, 1),
            "retrieval_skill": fall("retrieval_skill", 0.2, 16),
        }
    )
    story = told(timeline)
    found = codes(story)
    assert found["length_blow_up"] in ("clear", "likely") and "truncation_artefact" in found
    length, mi = onset(story, "response_length", 1), onset(story, "retrieval_skill", -1)
    assert length.first_bad <= mi.last_good


@pytest.mark.parametrize("grounded", [True, False])
def test_length_that_falls_off_a_cliff_is_read_with_mi(grounded):
    """300 to 60 at once, reward flat: compression if the prompt still shows, collapse if not."""
    changed = {"response_length": fall("response_length", 0.2)}
    if not grounded:
        changed["retrieval_skill"] = fall("retrieval_skill", 0.1)
    story = told(run(changed))
    cliff = onset(story, "response_length", -1)
    assert (cliff.kind, cliff.last_good, cliff.first_bad) == ("sudden", 90, 100)
    held = next(s for s in story.signatures if s.code == "length_collapse")
    assert held.confidence == ("possible" if grounded else "likely")
    assert bool(held.against) == grounded
    if grounded:
        assert story.verdict == "no_onset", "shorter texts alone are no bad news"


def test_drifting_logprobs_are_not_the_policys_doing():
    """Mean |difference| grows by 0.01 every fifty steps under the policy's own checkpoints."""
    drift = around(0.01 + 0.0002 * np.array(STEPS), 0.0005, 12)
    story = told(run({"rollout_logprob_spread": drift}))
    held = next(s for s in story.signatures if s.code == "scorer_mismatch")
    assert any("does not say that the policy moved" in text for text in held.evidence)
    assert story.verdict == "no_onset"
    voided = [finding("scorer_mismatch", "void", "log-probs differ")]
    sure = told(run(findings=dict.fromkeys(range(S), voided)))
    assert codes(sure)["scorer_mismatch"] == "likely"


def test_log_spikes_while_reward_keeps_rising():
    """Gradient norm 0.2, from step 120 on doubling every five steps; reward linear up."""
    steps = range(1, 201)
    history = {
        "grad_norm": {
            s: 0.2 + 0.004 * (s % 5) if s < 120 else 0.2 * 2 ** ((s - 120) / 5) for s in steps
        },
        "reward": {s: s / 200 + 0.004 * (s % 3) for s in steps},
    }
    rising = {"reward_mean": around(np.linspace(0.2, 0.8, S), 0.01, 5)}
    story = told(run(rising, history=history))
    spike = onset(story, "history/grad_norm", 1)
    assert spike.happened and spike.alarm
    assert spike.last_good <= 120 + 15 and spike.first_bad >= 115
    assert not onset(story, "history/reward", -1).happened
    assert story.verdict == "unexplained_onset", "reward that rises does not suppress the alarm"


def test_numbers_that_stop_being_numbers():
    story = told(run(numerical=range(12, S)))
    assert (story.verdict, story.confidence) == ("numerical_failure", "clear")
    assert (story.signatures[0].last_good, story.signatures[0].first_bad) == (110, 120)
    assert any("not finite" in text for text in story.signatures[0].evidence)


def test_missing_checkpoints_are_no_failure():
    """Steps at the end without a scorer: what nobody measured is not lost."""
    values = calm()
    for name in ("retrieval_skill", "mi_seq_estimate", "conditional_entropy_est"):
        values[name] = np.where(np.arange(S) < 14, values[name], np.nan)
    assert told(run(values)).verdict == "no_onset"


def test_starved_of_signal():
    weak = told(run(flat=before_after(0.1, 0.9, 9), std=before_after(0.4, 0.02, 9)))
    assert codes(weak)["signal_starvation"] == "clear"
    solved = told(
        run(
            {"success_rate": before_after(0.5, 0.9, 9) + around(0, 0.02, 4)},
            flat=before_after(0.1, 0.6, 9),
        )
    )
    held = next(s for s in solved.signatures if s.code == "signal_starvation")
    assert any("prompts get solved" in text for text in held.against)
    assert solved.verdict == "no_onset", "a run that solves its prompts has flat groups too"


def test_an_odd_step_and_a_resume_change_nothing():
    values = fall("retrieval_skill", 0.1)
    values[4] = 0.15
    story = told(
        run({"retrieval_skill": values}, resumes=(100,), regimes={10: "template_collapse"})
    )
    found = onset(story, "retrieval_skill", -1)
    assert (found.last_good, found.first_bad) == (90, 100)
    assert 40 in found.odd_steps
    assert "the run was resumed at step 100" in found.caution


def test_cost_since_the_first_bad_step():
    timeline = run({"retrieval_skill": fall("retrieval_skill", 0.1)})
    cost = told(timeline, step_minutes=6.0, gpu_hour_cost=2.5, gpus=8).cost
    # Steps 100 to 190: 91 steps of 6 minutes, on eight GPUs.
    assert (cost.since_step, cost.steps) == (100, 91)
    assert cost.hours == pytest.approx(9.1)
    assert cost.money == pytest.approx(9.1 * 8 * 2.5)
    assert told(timeline).cost is None


def test_weaker_movements_are_dated_once_an_alarm_is_raised():
    weak = calm()["success_rate"] + before_after(0.0, -0.12, 12)
    weak = weak + around(0.0, 0.055, 77, phi=0.0)
    alone = told(run({"success_rate": weak}))
    assert not onset(alone, "success_rate", -1).happened
    beside = told(run({"success_rate": weak, "retrieval_skill": fall("retrieval_skill", 0.1)}))
    found = onset(beside, "success_rate", -1)
    assert found.happened and found.p_value >= 0.005
    assert found.caution.startswith("by itself no more than likely")


def test_an_answer_that_is_paid_whatever_the_prompt_is_hacking_if_it_lasts():
    """Empty answers at full reward: at the last three steps it is likely, at one it is a hint."""
    found = [finding("empty_answers_rewarded", "warning", "31 of 32 answers are empty")]
    lasting = told(run(findings=dict.fromkeys(range(S - 3, S), found)))
    assert (lasting.verdict, lasting.confidence) == ("reward_hacking", "likely")
    once = told(run(findings={S - 1: found}))
    assert codes(once) == {"reward_hacking": "possible"} and once.verdict == "no_onset"
    hint = [finding("phantom_variance", "warning", "rewards vary without success")]
    assert told(run(findings=dict.fromkeys(range(S), hint))).verdict == "no_onset"
