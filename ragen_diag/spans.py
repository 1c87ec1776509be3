"""Prompt and response texts -> where the reasoning stands in each response.

Pure strings: knows no tokens, no tables and no rewards. RAGEN-2 (arXiv 2604.06268) Sec. 2.3: the
open tag belongs to what the model had seen (X), the reasoning Z lies between the tags.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


@dataclass(frozen=True)
class Tags:
    """The pair of texts around the reasoning."""

    open: str
    close: str


KNOWN_TAGS: tuple[Tags, ...] = (
    Tags("<think>", "</think>"),
    Tags("[THINK]", "[/THINK]"),
    Tags("◁think▷", "◁/think▷"),
    Tags("<|begin_of_thought|>", "<|end_of_thought|>"),
    Tags("<|channel|>analysis<|message|>", "<|end|>"),
    Tags("<thinking>", "</thinking>"),
    Tags("<reasoning>", "</reasoning>"),
    Tags("<thought>", "</thought>"),
    Tags("<reason>", "</reason>"),
    Tags("<scratchpad>", "</scratchpad>"),
)
"""Tried by `choose_tags`; of two pairs met equally often the earlier one is taken."""

_CLOSES_OTHER_THINGS = frozenset({"<|end|>"})
_IMPLIED_BELOW = 0.1


class SpanStatus(StrEnum):
    """What became of the reasoning span of one response."""

    VALID = "valid"
    MISSING = "missing"
    EMPTY = "empty"
    UNCLOSED = "unclosed"


class Prefill(StrEnum):
    """Where the open tag stands when the response does not have it."""

    NO = "no"
    PROMPT = "prompt"
    """At the end of prompts."""
    IMPLIED = "implied"
    """Nowhere: it was in the prompt, and the dump's text lost it."""


@dataclass(frozen=True)
class Span:
    """The reasoning Z = response[start:end], in characters, tags excluded.

    response[:start] is what stood before Z (text, then the open tag from `opening_start` on) and
    belongs to X. Without an open tag in the response, opening_start == start. Z ends at the
    first close tag, as in the public implementation: what comes after is answer, or another turn.
    `closes` counts the close tags from there on. MISSING: start = end = 0. UNCLOSED: Z would be
    all that follows.
    """

    status: SpanStatus
    start: int
    end: int
    opening_start: int
    closes: int


@dataclass(frozen=True)
class TagChoice:
    """The tags of a dump; None: the whole response is Z. `reason` says why, for the report."""

    tags: Tags | None
    prefilled: Prefill
    reason: str


def find_span(response: str, tags: Tags | None, *, prefilled: bool) -> Span:
    """The reasoning span of one response.

    `prefilled`: the open tag was given to the model, so that Z starts at offset 0, or behind an
    open tag that the model repeats there. Otherwise a close tag without an open tag before it is
    no span: MISSING.

    >>> span = find_span("Hm <think>a b</think> 4", Tags("<think>", "</think>"), prefilled=False)
    >>> span.status.value, (span.start, span.end), span.closes
    ('valid', (10, 13), 1)
    """
    if tags is None:
        status = SpanStatus.VALID if response.strip() else SpanStatus.EMPTY
        return Span(status, 0, len(response), 0, 0)
    opening_start, start = _opening(response, tags, prefilled)
    if start < 0:
        return Span(SpanStatus.MISSING, 0, 0, 0, 0)
    end = response.find(tags.close, start)
    if end < 0:
        return Span(SpanStatus.UNCLOSED, start, len(response), opening_start, 0)
    status = SpanStatus.VALID if response[start:end].strip() else SpanStatus.EMPTY
    closes = 1 if tags.close in _CLOSES_OTHER_THINGS else response.count(tags.close, end)
    return Span(status, start, end, opening_start, closes)


def find_spans(
    prompts: Sequence[str | None], responses: Sequence[str], choice: TagChoice
) -> list[Span]:
    """The span of every response, each with its own prompt's prefill or the dump's implied one."""
    return [
        find_span(response, choice.tags, prefilled=_is_prefilled(prompt or "", response, choice))
        for prompt, response in zip(prompts, responses, strict=True)
    ]


def choose_tags(
    prompts: Sequence[str | None],
    responses: Sequence[str],
    requested: tuple[str, str] | Literal["auto", "none"],
    *,
    complete: bool = False,
) -> TagChoice:
    """The tags of a dump: those requested, or of KNOWN_TAGS the pair met in most rows.

    A dump whose responses have close tags but almost never (under 10 %) an open tag before them
    lost the open tag with the prompt's special tokens; that is IMPLIED. It is judged for the dump
    as a whole, since in a single row it is more likely word salad. Never where the texts are
    `complete`, as those of token ids are: what is not there was not there for the model either.
    """
    if requested == "none":
        return TagChoice(None, Prefill.NO, "no tags by request: whole responses are scored")
    total = len(responses)
    if requested != "auto":
        tags = Tags(*requested)
        met = _rows_with(prompts, responses, tags)
        return _choice(
            prompts, responses, tags, f"requested; met in {met} of {total} rows", complete
        )
    met_by_tags = {tags: _rows_with(prompts, responses, tags) for tags in KNOWN_TAGS}
    tags = max(met_by_tags, key=lambda tags: met_by_tags[tags])
    if not met_by_tags[tags]:
        return TagChoice(None, Prefill.NO, "no known tags in any row: whole responses are scored")
    return _choice(
        prompts, responses, tags, f"met in {met_by_tags[tags]} of {total} rows", complete
    )


def split_prompt(prompt: str, tags: Tags | None) -> tuple[str, str]:
    """The prompt without an open tag at its end, and that opening with the white space after it.

    >>> split_prompt("2+2? <think>\\n", Tags("<think>", "</think>"))
    ('2+2? ', '<think>\\n')
    """
    body = prompt.rstrip()
    if tags is None or not body.endswith(tags.open):
        return prompt, ""
    cut = len(body) - len(tags.open)
    return prompt[:cut], prompt[cut:]


def _opening(response: str, tags: Tags, prefilled: bool) -> tuple[int, int]:
    """Where the open tag starts and where Z starts; (-1, -1) without one."""
    opened = response.find(tags.open)
    if prefilled and (opened < 0 or response[:opened].strip()):
        return 0, 0
    return (opened, opened + len(tags.open)) if opened >= 0 else (-1, -1)


def _choice(
    prompts: Sequence[str | None],
    responses: Sequence[str],
    tags: Tags,
    reason: str,
    complete: bool,
) -> TagChoice:
    counts: Counter[Prefill] = Counter()
    for prompt, response in zip(prompts, responses, strict=True):
        if split_prompt(prompt or "", tags)[1]:
            counts[Prefill.PROMPT] += 1
        elif tags.close in response:
            has_open = tags.open in response.partition(tags.close)[0]
            counts[Prefill.NO if has_open else Prefill.IMPLIED] += 1
    closed = counts[Prefill.NO] + counts[Prefill.IMPLIED]
    named = f"{tags.open} ... {tags.close} {reason}"
    lost = not complete and tags.close not in _CLOSES_OTHER_THINGS
    if lost and counts[Prefill.NO] < _IMPLIED_BELOW * closed:
        return TagChoice(tags, Prefill.IMPLIED, f"{named}; the open tag is implied by the dump")
    if counts[Prefill.PROMPT]:
        return TagChoice(tags, Prefill.PROMPT, f"{named}; prompts end with the open tag")
    return TagChoice(tags, Prefill.NO, named)


def _is_prefilled(prompt: str, response: str, choice: TagChoice) -> bool:
    if choice.tags is None:
        return False
    if split_prompt(prompt, choice.tags)[1]:
        return True
    before_close = response.partition(choice.tags.close)[0]
    return choice.prefilled is Prefill.IMPLIED and choice.tags.open not in before_close


def _rows_with(prompts: Sequence[str | None], responses: Sequence[str], tags: Tags) -> int:
    marks = [tags.open] if tags.close in _CLOSES_OTHER_THINGS else [tags.open, tags.close]
    return sum(
        any(mark in response for mark in marks) or bool(split_prompt(prompt or "", tags)[1])
        for prompt, response in zip(prompts, responses, strict=True)
    )
