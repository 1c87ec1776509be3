"""Texts -> token ids and back; responses cut at the borders of the reasoning span.

The tokenizer is whatever has these few methods; no model and no table is known here. A token that
reaches across a tag border belongs to the tag's side, so that Z never holds part of a tag.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragen_diag.spans import Span, SpanStatus

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
    start = first_covering(tokenizer, ids, span.start)
    stop = last_within(tokenizer, ids, span.end)
    return Pieces(ids, start, max(start, stop), span.status)


def decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The text of ids exactly, special tokens included."""
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return str(text)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text as it stands: nothing is put in front of it or behind it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def special_marks(tokenizer: Tokenizer) -> list[str]:
    """The texts of the tokens that decoding without special tokens leaves out, longest first.

    Without the unknown token: in a text that says that it was decoded, and no more.
    """
    # Role marks of some tokenizers are special in this table alone.
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    marks = {str(token.content) for token in added if token.special}
    marks |= set(tokenizer.all_special_tokens)
    return sorted(marks - {tokenizer.unk_token, ""}, key=lambda mark: (-len(mark), mark))


def first_covering(tokenizer: Tokenizer, ids: list[int], length: int) -> int:
    """The fewest leading ids whose text has at least `length` characters."""
    return bisect_left(range(len(ids)), length, key=lambda k: len(decode(tokenizer, ids[:k])))


def last_within(tokenizer: Tokenizer, ids: list[int], length: int) -> int:
    """The most leading ids whose text has at most `length` characters."""
    counts = range(1, len(ids) + 1)
    return bisect_right(counts, length, key=lambda k: len(decode(tokenizer, ids[:k])))


def _apart(tokenizer: Tokenizer, text: str, span: Span) -> Pieces:
    before, reasoning, after = (
        encode(tokenizer, part)
        for part in (text[: span.start], text[span.start : span.end], text[span.end :])
    )
    stop = len(before) + len(reasoning)
    return Pieces(before + reasoning + after, len(before), stop, span.status)
