"""Where the answer stands in a response, and what the answers of a batch have in common."""

import numpy as np
import pytest

from ragen_diag.answers import find_answer, find_answers
from ragen_diag.metrics.answers import (
    AnswerRows,
    answer_summary,
    commonest_answer,
    distinct_answer_ratio,
)
from ragen_diag.spans import Tags, find_span

THINK = Tags("<think>", "</think>")


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think>a</think> 4 ", "4"),
        ("<think>a</think><answer> go left </answer>", "go left"),
        ("<think>a</think><ans>4</ans>", "4"),
        ("<think>a</think> So \\boxed{\\frac{1}{2}} it is.", "\\frac{1}{2}"),
        ("<think>a</think><answer>So \\boxed{4}.</answer>", "4"),
        # Those in the reasoning are drafts, and of several the last counts.
        ("<think>\\boxed{1} <answer>2</answer></think> \\boxed{3}", "3"),
        ("<think>a</think> \\boxed{3} no, \\boxed{4}", "4"),
        ("<think>a</think><answer>4", "4"),
        ("<think>a</think> \\boxed{4", "4"),
        # Empty in every place where it can be.
        ("<think>a</think>", ""),
        ("<think></think>\n", ""),
        ("<think>a</think><answer></answer>", ""),
        ("<think>a</think><answer> \n</answer> trailing", ""),
        ("<think>a</think> \\boxed{}", ""),
        ("<think>a</think>\n<|im_end|>", ""),
        ("<think>a</think></s><pad><pad>", ""),
        ("", ""),
        # Without reasoning the whole response is answer; inside reasoning that never ends, only
        # what is marked as one.
        ("just 4", "just 4"),
        ("<think>a and so on", None),
        ("<think>a <answer>4</answer>", "4"),
    ],
)
def test_answer_behind_reasoning(response: str, answer: str | None) -> None:
    assert find_answer(response, find_span(response, THINK, prefilled=False), THINK) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [("I add. \\boxed{4}", "4"), ("<answer></answer>", ""), ("I add and get 4", None)],
)
def test_without_reasoning_tags_only_a_mark_tells_the_answer(
    response: str, answer: str | None
) -> None:
    assert find_answer(response, find_span(response, None, prefilled=False), None) == answer


def test_harmony_channels() -> None:
    tags = Tags("<|channel|>analysis<|message|>", "<|end|>")
    response = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>4"
        "<|return|>"
    )
    assert find_answer(response, find_span(response, tags, prefilled=False), tags) == "4"


def test_a_response_that_is_not_there_has_no_answer() -> None:
    span = find_span("", THINK, prefilled=False)
    assert find_answers([None, ""], [span, span], THINK) == [None, ""]


ROWS = AnswerRows(
    #         prompt a: 4 twice; prompt b: "" twice and 4; prompt c: none that can be told
    answer_N=["4", " 4\n", "5", "", "", "4", None],
    group_N=list("aaabbbc"),
    earned_N=np.array([1.0, 1.0, 0.0, 1.0, np.nan, 0.0, 1.0]),
)


def test_summary_by_hand() -> None:
    found = answer_summary(ROWS)
    assert (found.answers, found.empty, found.missing) == (6, 2, 1)
    # Scored are six rows, four of them at 1; of the two empty answers one is scored.
    assert (found.best, found.at_best, found.varies) == (1.0, pytest.approx(4 / 6), True)
    assert (found.empty_scored, found.empty_at_best) == (1, 1)
    assert (found.commonest, found.prompts, found.sharing) == ("4", 2, 1)
    assert found.truths is None
    assert distinct_answer_ratio(ROWS) == 1.0


def test_equally_common_answers_do_not_depend_on_the_order_of_rows() -> None:
    # Each prompt has one 7 and one other answer: 7 is the batch's commonest.
    answers, groups = ["7", "1", "2", "7", "7", "3"], list("aabbcc")
    for order in (slice(None), slice(None, None, -1)):
        rows = AnswerRows(
            answer_N=answers[order], group_N=groups[order], earned_N=np.full(6, np.nan)
        )
        assert commonest_answer(rows) == "7"
        assert answer_summary(rows).sharing == 3
        assert distinct_answer_ratio(rows) == pytest.approx(1 / 3)
        assert (answer_summary(rows).best, answer_summary(rows).at_best) == (None, None)


def test_nothing_can_be_told() -> None:
    rows = AnswerRows(answer_N=[None], group_N=["a"], earned_N=np.ones(1), truth_N=["4"])
    assert distinct_answer_ratio(rows) is None
    found = answer_summary(rows)
    assert (found.answers, found.prompts, found.commonest, found.truths) == (0, 0, None, 1)
