"""A prompt as text or as ids, cut where an open tag stands at its end.

Comes in: a text, ids or messages, and the tags. Goes out: a `Prompt`. Which of them a row's prompt
is taken from is decided elsewhere.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragen_diag.prompts.rendering import render_messages
from ragen_diag.spans import Span, Tags, split_prompt
from ragen_diag.tokens import Tokenizer, decode, encode, last_within, special_marks


@dataclass(frozen=True)
class Prompt:
    """X of the rows that share a prompt: its ids, the ids of an open tag at its end, its text."""

    ids: list[int]
    opening_ids: list[int]
    text: str
    rendered_opening: str = ""
    """The open tag as text where a chat template put it there, and not the dump."""


def encode_prompt(tokenizer: Tokenizer, text: str, tags: Tags | None, *, rendered: bool) -> Prompt:
    """Ids of a prompt's text, cut where its trailing open tag begins.

    A `rendered` text is encoded as it stands; any other gets what the tokenizer puts in front by
    default. Nothing is ever put behind the text.
    """
    body, opening = split_prompt(text, tags)
    prefix = [] if rendered else _default_prefix(tokenizer, text)
    if not opening or not tokenizer.is_fast:
        ids, opening_ids = encode(tokenizer, body), encode(tokenizer, opening)
        return Prompt(prefix + ids, opening_ids, body)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, ends = encoded["input_ids"], [end for _, end in encoded["offset_mapping"]]
    # Encoded together, so that the tag's tokens are the ones that training saw.
    cut = bisect_right(ends, len(body))
    return Prompt(prefix + ids[:cut], ids[cut:], body)


def split_prompt_ids(tokenizer: Tokenizer, ids: list[int], tags: Tags | None) -> Prompt:
    """A prompt that is known as ids, cut where its trailing open tag begins."""
    body, opening = split_prompt(decode(tokenizer, ids), tags)
    cut = last_within(tokenizer, ids, len(body)) if opening else len(ids)
    return Prompt(ids[:cut], ids[cut:], body)


def prompt_of_messages(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    tags: Tags | None,
    *,
    opening: str = "",
) -> Prompt:
    """A prompt that is known as a conversation, cut where the open tag begins that its rendering
    may end with.

    `opening` is the open tag that the dump itself tells of; it stands behind a rendering that ends
    without one.

    Raises:
        DumpError: see `render_messages`.
    """
    prompt = split_prompt_ids(tokenizer, render_messages(tokenizer, messages), tags)
    if opening:
        given = prompt.opening_ids or encode(tokenizer, opening)
        return replace(prompt, opening_ids=given)
    return replace(prompt, rendered_opening=decode(tokenizer, prompt.opening_ids))


def behind_opening(response: str, span: Span, prompt: Prompt | None) -> tuple[str, Span]:
    """A response without the open tag that the template has given already, and its span there.

    A conversation tells whole answers, also where the template opens the reasoning itself; an API
    that takes the reasoning out of the answer leaves no other choice. The model saw one tag.
    """
    opening = "" if prompt is None else prompt.rendered_opening
    tag = opening.rstrip()
    if not tag or response[: span.start].strip() != tag:
        return response, span
    space = opening[len(tag) :]
    cut = span.start + (len(space) if response.startswith(space, span.start, span.end) else 0)
    return response[cut:], replace(span, start=0, end=span.end - cut, opening_start=0)


def is_rendered(tokenizer: Tokenizer, text: str) -> bool:
    """Whether a text is a rendered chat: it starts with the BOS or holds another special token."""
    if tokenizer.bos_token and text.startswith(tokenizer.bos_token):
        return True
    return any(mark in text for mark in special_marks(tokenizer))


def bos_count(tokenizer: Tokenizer, ids: Sequence[int]) -> int:
    """How many BOS tokens a prompt begins with.

    Two are a sign of a rendered chat to which the tokenizer added its own.
    """
    bos = encode(tokenizer, tokenizer.bos_token) if tokenizer.bos_token else []
    if len(bos) != 1:
        return 0
    other = (place for place, token in enumerate(ids) if token != bos[0])
    return next(other, len(ids))


def _default_prefix(tokenizer: Tokenizer, text: str) -> list[int]:
    """What the tokenizer puts in front of a text by default (a BOS, or nothing)."""
    plain = encode(tokenizer, text)
    full = list(tokenizer(text)["input_ids"])
    extra = len(full) - len(plain)
    for lead in range(extra + 1):
        if full[lead : lead + len(plain)] == plain:
            return full[:lead]
    return []
