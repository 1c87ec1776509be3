"""Where the reasoning stands: tags, prefilled tags, lost tags, and rows that have none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen_diag.spans import (
    KNOWN_TAGS,
    Prefill,
    SpanStatus,
    Tags,
    choose_tags,
    find_span,
    find_spans,
    split_prompt,
)

THINK = Tags("<think>", "</think>")
VALID, MISSING, EMPTY, UNCLOSED = SpanStatus


@pytest.mark.parametrize(
    ("response", "prefilled", "status", "opening", "reasoning", "closes"),
    [
        ("<think> a </think> 4", False, VALID, "<think>", " a ", 1),
        ("Well <think>a</think>", False, VALID, "Well <think>", "a", 1),
        ("<think>a</think> 1 <think>b</think> 2", False, VALID, "<think>", "a", 2),
        ("<think>a</think>b</think>", False, VALID, "<think>", "a", 2),
        ("</think> <think>a</think>", False, VALID, "</think> <think>", "a", 1),
        ("a</think> 4", False, MISSING, "", "", 0),
        ("a 4", False, MISSING, "", "", 0),
        ("", False, MISSING, "", "", 0),
        ("<think> \n </think> 4", False, EMPTY, "<think>", " \n ", 1),
        ("<think></think>", False, EMPTY, "<think>", "", 1),
        ("<think>a", False, UNCLOSED, "<think>", "a", 0),
        ("</think><think>a", False, UNCLOSED, "</think><think>", "a", 0),
        ("a</think> 4", True, VALID, "", "a", 1),
        ("\n<think>a</think> 4", True, VALID, "\n<think>", "a", 1),
        ("a</think> 1 <think>b</think> 2", True, VALID, "", "a", 2),
        ("<think>a</think> <answer>b</answer> </think>", False, VALID, "<think>", "a", 2),
        ("</think> 4", True, EMPTY, "", "", 1),
        ("a", True, UNCLOSED, "", "a", 0),
    ],
)
def test_span_of_one_response(
    response: str,
    prefilled: bool,
    status: SpanStatus,
    opening: str,
    reasoning: str,
    closes: int,
) -> None:
    span = find_span(response, THINK, prefilled=prefilled)
    assert span.status is status
    assert response[: span.start] == opening
    assert span.closes == closes
    assert response[span.start : span.end] == reasoning
    tag = response[span.opening_start : span.start]
    assert tag == (THINK.open if THINK.open in opening else "")


def test_without_tags_the_response_is_the_reasoning() -> None:
    span = find_span(" a ", None, prefilled=False)
    assert (span.status, span.start, span.end) == (VALID, 0, 3)
    assert find_span("", None, prefilled=False).status is EMPTY


PLAIN = st.text("ab <>/\n", max_size=12)


@given(
    tags=st.sampled_from(KNOWN_TAGS),
    before=PLAIN,
    reasoning=PLAIN.filter(str.strip),
    after=PLAIN,
    prefilled=st.booleans(),
)
def test_reasoning_is_cut_exactly_between_its_tags(
    tags: Tags, before: str, reasoning: str, after: str, prefilled: bool
) -> None:
    head = "" if prefilled else before + tags.open
    response = f"{head}{reasoning}{tags.close}{after}"
    span = find_span(response, tags, prefilled=prefilled)
    assert (span.status, span.closes) == (VALID, 1)
    assert (span.start, span.end) == (len(head), len(head) + len(reasoning))
    assert response[: span.start] == head


@given(
    parts=st.lists(st.sampled_from(["<think>", "</think>", "a", " "]), max_size=8),
    prefilled=st.booleans(),
)
def test_spans_keep_to_the_response_and_begin_and_end_outside_tags(
    parts: list[str], prefilled: bool
) -> None:
    response = "".join(parts)
    span = find_span(response, THINK, prefilled=prefilled)
    assert 0 <= span.opening_start <= span.start <= span.end <= len(response)
    reasoning = response[span.start : span.end]
    if span.status is VALID:
        assert reasoning.strip()
        assert response[span.end :].startswith(THINK.close)
        assert span.closes == response[span.end :].count(THINK.close)
    assert THINK.close not in reasoning


def test_tags_are_those_of_most_rows() -> None:
    responses = ["<reasoning>a</reasoning>"] * 3 + ["<think>b</think>"]
    choice = choose_tags([None] * 4, responses, "auto")
    assert choice.tags == Tags("<reasoning>", "</reasoning>")
    assert choice.prefilled is Prefill.NO
    assert "3 of 4" in choice.reason
    statuses = [span.status for span in find_spans([None] * 4, responses, choice)]
    assert statuses == [VALID] * 3 + [MISSING]


def test_no_tags_anywhere_or_by_request() -> None:
    for responses, requested in ((["a", ""], "auto"), (["<think>a</think>"] * 2, "none")):
        choice = choose_tags(["p", "p"], responses, requested)
        assert choice.tags is None
        spans = find_spans(["p", "p"], responses, choice)
        assert [s.end for s in spans] == [len(r) for r in responses]
    # A chat's end marker is no sign of a reasoning channel.
    assert choose_tags(["p"], ["a<|end|>"], "auto").tags is None


def test_requested_tags_are_taken_unseen() -> None:
    choice = choose_tags(["p"], ["a"], ("[[", "]]"))
    assert choice.tags == Tags("[[", "]]")
    assert find_spans(["p"], ["x [[a]]"], choice)[0].start == 4


def test_prompts_that_end_with_the_open_tag() -> None:
    prompts = ["1+1? <think>\n", "2+2?"]
    choice = choose_tags(prompts, ["a</think> 2", "<think>b</think> 4"], "auto")
    assert (choice.tags, choice.prefilled) == (THINK, Prefill.PROMPT)
    spans = find_spans(prompts, ["a</think> 2", "b</think> 4"], choice)
    assert [s.status for s in spans] == [VALID, MISSING]


def test_switched_off_thinking_is_no_prefill() -> None:
    prompt = "2+2? <think>\n\n</think>\n\n"
    assert split_prompt(prompt, THINK) == (prompt, "")
    assert choose_tags([prompt], ["4"], "auto").tags is None


def test_lost_open_tag_is_accepted_for_a_dump_not_for_a_row() -> None:
    lost = ["a</think> 1"] * 20
    one_kept = [*lost[1:], "<think>a</think> 1"]
    choice = choose_tags(["p"] * 20, one_kept, "auto")
    assert choice.prefilled is Prefill.IMPLIED
    mixed = [*one_kept[2:], "no tag", ""]
    statuses = [s.status for s in find_spans(["p"] * 20, mixed, choice)]
    assert statuses == [VALID] * 18 + [UNCLOSED] * 2

    two_kept = [*lost[2:], "<think>a</think> 1", "<think>a</think> 1"]
    choice = choose_tags(["p"] * 20, two_kept, "auto")
    assert choice.prefilled is Prefill.NO
    statuses = [s.status for s in find_spans(["p"] * 20, two_kept, choice)]
    assert statuses == [MISSING] * 18 + [VALID] * 2


@given(body=PLAIN, space=st.text(" \n", max_size=3))
def test_split_prompt_loses_nothing(body: str, space: str) -> None:
    assert split_prompt(body + THINK.open + space, THINK) == (body, THINK.open + space)
    assert split_prompt(body, None) == (body, "")
