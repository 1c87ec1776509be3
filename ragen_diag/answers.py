"""Responses and their reasoning spans -> what each response gives as its answer.

Pure strings: knows no tokens, no tables and no rewards.
"""

import re
from collections.abc import Sequence

from ragen_diag.spans import Span, SpanStatus, Tags

ANSWER_TAGS: tuple[Tags, ...] = (
    Tags("<answer>", "</answer>"),
    Tags("<ans>", "</ans>"),
    Tags("<|begin_of_solution|>", "<|end_of_solution|>"),
    Tags("<|channel|>final<|message|>", "<|return|>"),
)
"""Looked for in this order; the last opening of the first pair that occurs holds the answer."""

_BOXED = "\\boxed{"
_BRACE = re.compile(r"[{}]")
# Bounded, as these texts are anybody's: end-of-turn and padding marks are no answer.
_SPECIAL = re.compile(r"<[|｜][^<>|｜]{1,40}[|｜]>|</?s>|<(?:eos|bos|pad|end_of_turn)>")  # noqa: RUF001


def find_answer(response: str, span: Span, tags: Tags | None) -> str | None:
    r"""What a response gives as its answer: "" for an empty one, None where none can be told.

    What follows the reasoning (the whole response where the reasoning is missing), inside the
    answer tags and then inside the last `\boxed{}` where it has these. An unclosed mark holds all
    that follows. Reasoning that never ends, or a response without any tags, gives an answer only
    inside such a mark.

    >>> from ragen_diag.spans import find_span
    >>> think = Tags("<think>", "</think>")
    >>> def answer(text):
    ...     return find_answer(text, find_span(text, think, prefilled=False), think)
    >>> answer("<think>hm</think> It is \\boxed{4}."), answer("<think>hm</think><answer></answer>")
    ('4', '')
    """
    marked_only = tags is None or span.status is SpanStatus.UNCLOSED
    rest = response
    if tags is not None and span.status in (SpanStatus.VALID, SpanStatus.EMPTY):
        rest = response[span.end + len(tags.close) :]
    inside = _inside_tags(rest)
    boxed = _inside_box(rest if inside is None else inside)
    found = inside if boxed is None else boxed
    if found is None and not marked_only:
        found = rest
    return None if found is None else _SPECIAL.sub("", found).strip()


def find_answers(
    responses: Sequence[str | None], spans: Sequence[Span], tags: Tags | None
) -> list[str | None]:
    """The answer of every response; None too for one that the dump does not have."""
    return [
        None if response is None else find_answer(response, span, tags)
        for response, span in zip(responses, spans, strict=True)
    ]


def _inside_tags(text: str) -> str | None:
    for tags in ANSWER_TAGS:
        _, opened, rest = text.rpartition(tags.open)
        if opened:
            return rest.partition(tags.close)[0]
    return None


def _inside_box(text: str) -> str | None:
    """The inside of the last box, with its own braces paired."""
    _, opened, rest = text.rpartition(_BOXED)
    if not opened:
        return None
    depth = 1
    for brace in _BRACE.finditer(rest):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return rest[: brace.start()]
    return rest
