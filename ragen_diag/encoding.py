"""Rollout table and spans -> every row's prompt and response as token ids, cut at the borders.

The one place where rows become ids. Knows a tokenizer, no columns, no model and no metrics.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ragen_diag.errors import DumpError
from ragen_diag.prompts.forms import PromptReader, has_ids
from ragen_diag.prompts.prompt import Prompt, behind_opening, bos_count
from ragen_diag.prompts.rendering import render_messages
from ragen_diag.prompts.stripped import bare, dense
from ragen_diag.settings import PromptFormat
from ragen_diag.spans import Span, Tags
from ragen_diag.tokens import (
    Pieces,
    Tokenizer,
    cut_response_ids,
    decode,
    encode,
    encode_response_pieces,
)

PLACEHOLDERS = (
    "<|vision_start|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_pad|>",
    "<|audio_pad|>",
    "<|image|>",
    "<image_soft_token>",
    "<start_of_image>",
    "<IMG_CONTEXT>",
)
"""Texts that stand for tokens made from an image or a sound. Nobody writes them by hand."""
WRITTEN_IN = ("<image>", "<audio>")
PARTS_LEFT_OUT = "prompt_parts_left_out"
"""What the reader puts in the place of such a part, and how it flags the row: without the flag
these may be words of the text."""
_NEEDED = ("prompt", "messages", "response", "prompt_ids", "response_ids", "_file", "_row")


@dataclass(frozen=True)
class EncodedRows:
    """N rows of a table as ids.

    `forms_N` says what each prompt was taken from: "ids", "raw", "rendered", "messages" or
    "stripped"; "" where there is none, which is None in `prompts_N`. Rows of form "ids" have the
    dump's own ids in `pieces_N` too, the others were encoded.
    """

    prompts_N: list[Prompt | None]
    forms_N: list[str]
    pieces_N: list[Pieces]


def encode_rows(
    table: pl.DataFrame,
    spans: Sequence[Span],
    tags: Tags | None,
    tokenizer: Tokenizer,
    prompt_format: PromptFormat = "auto",
) -> EncodedRows:
    """All rows as ids; equal prompts are encoded once and are one object.

    `spans[i]` is the span of row i's response text, which must be that of its ids where the row
    has ids of prompt and response: these are used then.

    Raises:
        DumpError: a prompt that cannot be brought into the format; file and row are named.
    """
    reader = PromptReader(tokenizer, tags, prompt_format)
    known: dict[tuple[str, object], tuple[Prompt | None, str]] = {}
    read: list[tuple[Prompt | None, str]] = []
    with_ids: list[bool] = []
    for row in table.select(_NEEDED).iter_rows(named=True):
        key = _prompt_key(row)
        if key not in known:
            try:
                known[key] = reader.read(row)
            except DumpError as error:
                raise DumpError(f"{row['_file']}, row {row['_row']}: {error}") from error
        read.append(known[key])
        with_ids.append(has_ids(row))
    prompts, forms = [prompt for prompt, _ in read], [form for _, form in read]
    return EncodedRows(prompts, forms, _pieces(table, spans, prompts, with_ids, tokenizer))


@dataclass(frozen=True)
class TokenChecks:
    """What could make the ids of some rows other ones than the model saw.

    `round_trips`: rows with ids of the dump whose response comes back from decoding and encoding
    as it was. `replacements`: rows with U+FFFD in the response, as ids that end in the middle of a
    character decode to. `double_bos`: rows whose prompt begins with the BOS twice.
    """

    round_trips: int
    replacements: int
    double_bos: int


def check_tokens(
    table: pl.DataFrame, encoded: EncodedRows, rows: Sequence[int], tokenizer: Tokenizer
) -> TokenChecks:
    """The checks of some rows of the table."""
    texts = table["response"].fill_null("").gather(list(rows)).to_list()
    prompts = {id(prompt): prompt for row in rows if (prompt := encoded.prompts_N[row])}
    doubled = {key for key, prompt in prompts.items() if bos_count(tokenizer, prompt.ids) > 1}
    given = [encoded.pieces_N[row].ids for row in rows if encoded.forms_N[row] == "ids"]
    return TokenChecks(
        round_trips=sum(encode(tokenizer, decode(tokenizer, ids)) == ids for ids in given),
        replacements=sum("\ufffd" in text for text in texts),
        double_bos=sum(id(encoded.prompts_N[row]) in doubled for row in rows),
    )


def placeholders(table: pl.DataFrame, encoded: EncodedRows) -> list[int]:
    """Rows with a mark in the place of tokens that are not known: those of an image or a sound."""
    flags = table["_flags"].fill_null([]).to_list()
    responses = table["response"].fill_null("").to_list()
    found = []
    for row, prompt in enumerate(encoded.prompts_N):
        marks = (*PLACEHOLDERS, *(WRITTEN_IN if PARTS_LEFT_OUT in flags[row] else ()))
        seen = ("" if prompt is None else prompt.text, responses[row])
        if any(mark in text for mark in marks for text in seen):
            found.append(row)
    return found


def against_template(table: pl.DataFrame, tokenizer: Tokenizer) -> dict[str, int]:
    """Rows that have both messages and a prompt as text or ids, by how the two agree.

    "same"; "white_space" and "special_tokens": only in these does what the chat template makes of
    the messages differ from the saved prompt; "words": in more than these; "tokens": the same text
    as other ids; "refused": the template takes no such messages. Empty without a template.
    """
    if not tokenizer.chat_template:
        return {}
    known: dict[tuple[object, ...], str] = {}
    found: Counter[str] = Counter()
    for row in table.select(_NEEDED).iter_rows(named=True):
        if not row["messages"] or (row["prompt"] is None and not row["prompt_ids"]):
            continue
        key = (*_prompt_key(row), json.dumps(row["messages"]))
        if key not in known:
            known[key] = _agreement(row, tokenizer)
        found[known[key]] += 1
    return dict(sorted(found.items()))


def _agreement(row: Mapping[str, Any], tokenizer: Tokenizer) -> str:
    messages = row["messages"]
    # A column of whole conversations holds the answer too.
    if messages[-1]["role"] == "assistant" and len(messages) > 1:
        messages = messages[:-1]
    try:
        ids = render_messages(tokenizer, messages)
    except DumpError:
        return "refused"
    rendered, saved = decode(tokenizer, ids), row["prompt"]
    if has_ids(row):
        if row["prompt_ids"] == ids:
            return "same"
        saved = decode(tokenizer, row["prompt_ids"])
    if saved == rendered:
        return "tokens" if has_ids(row) else "same"
    if dense(saved) == dense(rendered):
        return "white_space"
    same = dense(bare(tokenizer, saved)) == dense(bare(tokenizer, rendered))
    return "special_tokens" if same else "words"


def _prompt_key(row: Mapping[str, Any]) -> tuple[str, object]:
    """What tells a row's prompt from another's."""
    if has_ids(row):
        return "ids", tuple(row["prompt_ids"])
    return "text", (row["prompt"], json.dumps(row["messages"]))


def opening_of(prompt: Prompt | None, piece: Pieces) -> list[int]:
    """What stands between a prompt and Z: an open tag at the prompt's end, what the response has
    before Z."""
    return ([] if prompt is None else prompt.opening_ids) + piece.opening_ids


def _pieces(
    table: pl.DataFrame,
    spans: Sequence[Span],
    prompts: Sequence[Prompt | None],
    with_ids: Sequence[bool],
    tokenizer: Tokenizer,
) -> list[Pieces]:
    """Each row's response as cut ids."""
    texts = [i for i, known in enumerate(with_ids) if not known]
    responses = table["response"].fill_null("").to_list()
    told = [behind_opening(responses[i], spans[i], prompts[i]) for i in texts]
    encoded = encode_response_pieces(tokenizer, [text for text, _ in told], [s for _, s in told])
    return [
        cut_response_ids(tokenizer, ids, span) if known else next(encoded)
        for ids, known, span in zip(table["response_ids"].to_list(), with_ids, spans, strict=True)
    ]
