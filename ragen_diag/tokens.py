"""Prompts and responses -> token ids, cut at the borders of the reasoning span.

The tokenizer is whatever has these few methods; no model and no table is known here. A token that
reaches across a tag border belongs to the tag's side, so that Z never holds part of a tag.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from jinja2 import TemplateError

from ragen_diag.errors import DumpError
from ragen_diag.spans import Span, SpanStatus, Tags, split_prompt

_CHUNK = 256


class Tokenizer(Protocol):
    """What is used of a Hugging Face tokenizer, as read-only members."""

    @property
    def is_fast(self) -> bool: ...
    @property
    def bos_token(self) -> str | None: ...
    @property
    def unk_token(self) -> str | None: ...
    @property
    def all_special_tokens(self) -> list[str]: ...
    @property
    def chat_template(self) -> Any: ...
    def __call__(self, text: Any, **options: Any) -> Mapping[str, Any]: ...
    def decode(self, token_ids: list[int], **options: Any) -> Any: ...
    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


@dataclass(frozen=True)
class Prompt:
    """X of the rows that share a prompt: its ids, the ids of an open tag at its end, its text."""

    ids: list[int]
    opening_ids: list[int]
    text: str
    rendered_opening: str = ""
    """The open tag as text where a chat template put it there, and not the dump."""


@dataclass(frozen=True)
class Pieces:
    """A response as ids: ids[:start] stood before Z, ids[start:stop] is Z, the rest came after."""

    ids: list[int]
    start: int
    stop: int
    status: SpanStatus

    @property
    def opening_ids(self) -> list[int]:
        """Text and tag before Z, fed but never scored."""
        return self.ids[: self.start]

    @property
    def reasoning_ids(self) -> list[int]:
        """Z."""
        return self.ids[self.start : self.stop]


def encode_prompt(tokenizer: Tokenizer, text: str, tags: Tags | None) -> Prompt:
    """Ids of a prompt's text, cut where its trailing open tag begins.

    Text that starts with the BOS or holds another special token is a rendered chat and is encoded
    as it stands; other text gets what the tokenizer puts in front by default. Nothing is ever put
    behind the text.
    """
    body, opening = split_prompt(text, tags)
    prefix = [] if _is_rendered(tokenizer, text) else _default_prefix(tokenizer, text)
    if not opening or not tokenizer.is_fast:
        ids, opening_ids = _encode(tokenizer, body), _encode(tokenizer, opening)
        return Prompt(prefix + ids, opening_ids, body)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, ends = encoded["input_ids"], [end for _, end in encoded["offset_mapping"]]
    # Encoded together, so that the tag's tokens are the ones that training saw.
    cut = bisect_right(ends, len(body))
    return Prompt(prefix + ids[:cut], ids[cut:], body)


def split_prompt_ids(tokenizer: Tokenizer, ids: list[int], tags: Tags | None) -> Prompt:
    """A prompt that is known as ids, cut where its trailing open tag begins."""
    body, opening = split_prompt(decode(tokenizer, ids), tags)
    cut = _last_within(tokenizer, ids, len(body)) if opening else len(ids)
    return Prompt(ids[:cut], ids[cut:], body)


def prompt_of_messages(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], tags: Tags | None
) -> Prompt:
    """A prompt that is known as a conversation, cut where the open tag begins that its rendering
    may end with.

    Raises:
        DumpError: see `render_messages`.
    """
    prompt = split_prompt_ids(tokenizer, render_messages(tokenizer, messages), tags)
    return replace(prompt, rendered_opening=decode(tokenizer, prompt.opening_ids))


def render_messages(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Ids of a conversation up to where the assistant's answer begins, by the chat template.

    Raises:
        DumpError: the tokenizer has no chat template, or it refuses these messages.
    """
    if not tokenizer.chat_template:
        raise DumpError(
            "the dump has prompts as messages only and the tokenizer has no chat template; "
            "add a `prompt` column or name another tokenizer with --tokenizer"
        )
    try:
        rendered = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except TemplateError as error:
        raise DumpError(f"the chat template refuses a prompt's messages: {error}") from error
    ids = rendered["input_ids"] if isinstance(rendered, Mapping) else rendered
    # Some versions answer one conversation with a batch of one.
    flat = ids[0] if len(ids) and not isinstance(ids[0], int) else ids
    return [int(token) for token in flat]


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


def encode_response_pieces(
    tokenizer: Tokenizer, responses: Sequence[str], spans: Sequence[Span]
) -> Iterator[Pieces]:
    """Each response's text as ids, cut at its span; no special tokens are added."""
    for first in range(0, len(responses), _CHUNK):
        texts = list(responses[first : first + _CHUNK])
        chunk = spans[first : first + _CHUNK]
        if not tokenizer.is_fast:
            yield from (_apart(tokenizer, t, s) for t, s in zip(texts, chunk, strict=True))
            continue
        encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
        rows = zip(encoded["input_ids"], encoded["offset_mapping"], chunk, strict=True)
        for ids, offsets, span in rows:
            start = bisect_left([begin for begin, _ in offsets], span.start)
            stop = bisect_right([end for _, end in offsets], span.end)
            yield Pieces(ids, start, max(start, stop), span.status)


def cut_response_ids(tokenizer: Tokenizer, ids: list[int], span: Span) -> Pieces:
    """A response that is known as ids, cut at the span of its decoded text."""
    start = _first_covering(tokenizer, ids, span.start)
    stop = _last_within(tokenizer, ids, span.end)
    return Pieces(ids, start, max(start, stop), span.status)


def decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The text of ids exactly, special tokens included."""
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return str(text)


def _first_covering(tokenizer: Tokenizer, ids: list[int], length: int) -> int:
    """The fewest leading ids whose text has at least `length` characters."""
    return bisect_left(range(len(ids)), length, key=lambda k: len(decode(tokenizer, ids[:k])))


def _last_within(tokenizer: Tokenizer, ids: list[int], length: int) -> int:
    """The most leading ids whose text has at most `length` characters."""
    counts = range(1, len(ids) + 1)
    return bisect_right(counts, length, key=lambda k: len(decode(tokenizer, ids[:k])))


def _apart(tokenizer: Tokenizer, text: str, span: Span) -> Pieces:
    before, reasoning, after = (
        _encode(tokenizer, part)
        for part in (text[: span.start], text[span.start : span.end], text[span.end :])
    )
    stop = len(before) + len(reasoning)
    return Pieces(before + reasoning + after, len(before), stop, span.status)


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def _is_rendered(tokenizer: Tokenizer, text: str) -> bool:
    if tokenizer.bos_token and text.startswith(tokenizer.bos_token):
        return True
    # "<unk>" in a text says that it was decoded, not that a template was applied.
    marks = set(tokenizer.all_special_tokens) - {tokenizer.unk_token}
    return any(mark and mark in text for mark in marks)


def _default_prefix(tokenizer: Tokenizer, text: str) -> list[int]:
    """What the tokenizer puts in front of a text by default (a BOS, or nothing)."""
    plain = _encode(tokenizer, text)
    full = list(tokenizer(text)["input_ids"])
    extra = len(full) - len(plain)
    for lead in range(extra + 1):
        if full[lead : lead + len(plain)] == plain:
            return full[:lead]
    return []
