"""Rollout table and spans -> the distinct prompts, the scored responses, and who belongs to whom.

Everything is token ids from here on. Knows a tokenizer, no model, no rewards and no metrics.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ragen_diag.encoding import TokenChecks, check_tokens, encode_rows, opening_of, placeholders
from ragen_diag.prompts.prompt import Prompt
from ragen_diag.settings import PromptFormat
from ragen_diag.spans import Span, SpanStatus, Tags
from ragen_diag.tokens import Pieces, Tokenizer

_REASONS = {
    SpanStatus.MISSING: "no_reasoning_span",
    SpanStatus.EMPTY: "empty_reasoning",
    SpanStatus.UNCLOSED: "unclosed_reasoning",
}


@dataclass(frozen=True)
class Groups:
    """R scored responses under P distinct prompts, as token ids.

    `row_R` and `own_R` give each scored row's place in the table and its column; rows stand in
    table order, columns sorted by turn and ids, whatever the order of rows. A column is a distinct
    sequence of prompt ids at one turn that at least one scored row has. The candidates of a row
    are the columns of its turn: a response under another turn's prompt would be told by how far
    the trajectory is, and not by what it is about.
    """

    prompt_ids_P: list[list[int]]
    """Prompts without an open tag at their end."""
    turn_P: NDArray[np.int64]
    """The turn of each column, ascending; 0 for rows that name none."""
    prompts_P: list[str]
    """Their texts."""
    opening_ids_R: list[list[int]]
    """What stands between prompt and Z: an open tag, text before it. Fed, never scored."""
    reasoning_ids_R: list[list[int]]
    """Z, at least one token."""
    own_R: NDArray[np.int64]
    row_R: NDArray[np.int64]
    rollout_logp_R: list[NDArray[np.float64] | None]
    """Log-probs of the dump for the tokens of Z, nats, (T_r,) each, NaN where one is not known;
    None for a row without any, or with another number of them than of tokens."""
    logprobs_lacking: Mapping[str, int]
    """Scored rows by what of these they lack: "no_logprobs", "length_differs",
    "undefined_tokens"."""
    column_of_row: NDArray[np.int64]
    """(rows of the table,) column of every row, scored or not; -1 if its prompt is no column."""
    excluded: dict[int, str]
    """Table row -> why it is not scored."""
    form_R: list[str]
    """What the prompt of each scored row was taken from: see `EncodedRows.forms_N`."""
    checks: TokenChecks
    """Of the scored rows."""

    @property
    def from_ids(self) -> int:
        """Scored rows whose ids came from the dump."""
        return self.form_R.count("ids")

    @property
    def retokenised(self) -> int:
        """Scored rows that were encoded from text."""
        return len(self.form_R) - self.from_ids


def make_groups(
    table: pl.DataFrame,
    spans: Sequence[Span],
    tags: Tags | None,
    tokenizer: Tokenizer,
    *,
    limit: int | None = None,
    seed: int = 0,
    max_length: int | None = None,
    prompt_format: PromptFormat = "auto",
) -> Groups:
    """Encodes and cuts all rows, and keeps those that can be scored under all their candidates.

    `spans[i]` is the span of row i's response text, which must be that of its ids where the row
    has ids of prompt and response: these are used then. `max_length` is the model's context:
    prompts too long for it are excluded ("prompt_too_long"), then the rows that do not fit under
    the longest remaining prompt ("too_long"), so that the most rows of a turn stay; nothing is
    cut. `limit` columns are drawn without replacement by `seed`; the other prompts' rows are
    "not_sampled". Where there are several turns, a prompt that is left alone in its turn has
    nothing to be told from: its rows are a "lone_turn". Further reasons: "no_prompt";
    "vision_placeholder", where prompt or response hold a mark that stands for an image or a sound;
    "null_response" and "empty_response", where there is no text (or white space alone) in which to
    look for a span; "no_reasoning_span", "empty_reasoning", "unclosed_reasoning". Every table row
    is scored or excluded. R may be 0.

    Raises:
        DumpError: a prompt cannot be brought into the format asked for.
    """
    encoded = encode_rows(table, spans, tags, tokenizer, prompt_format)
    prompts, pieces = encoded.prompts_N, encoded.pieces_N
    excluded = _unscorable(prompts, pieces, _blank(table["response"], encoded.forms_N))
    excluded |= dict.fromkeys(placeholders(table, encoded), "vision_placeholder")
    turns = table["turn"].fill_null(0).to_list()
    if max_length is not None:
        _exclude_long(prompts, pieces, turns, max_length, excluded)
    keys, distinct = _distinct(prompts, turns)
    _exclude_lone(keys, distinct, excluded)
    if limit is not None:
        _exclude_unsampled(keys, limit, seed, excluded)
        _exclude_lone(keys, distinct, excluded)
    rows = [row for row in range(table.height) if row not in excluded]
    kept = _scored(keys, excluded)
    columns = {key: column for column, key in enumerate(kept)}
    column_of_row = [columns.get(key, -1) for key in keys]
    rollout_logp_R, lacking = _rollout_logp(table["rollout_logprobs"], pieces, rows)
    return Groups(
        prompt_ids_P=[distinct[key][1].ids for key in kept],
        turn_P=np.array([distinct[key][0] for key in kept], dtype=np.int64),
        prompts_P=[distinct[key][1].text for key in kept],
        opening_ids_R=[opening_of(prompts[row], pieces[row]) for row in rows],
        reasoning_ids_R=[pieces[row].reasoning_ids for row in rows],
        own_R=np.array([column_of_row[row] for row in rows], dtype=np.int64),
        row_R=np.array(rows, dtype=np.int64),
        rollout_logp_R=rollout_logp_R,
        logprobs_lacking=lacking,
        column_of_row=np.array(column_of_row, dtype=np.int64),
        excluded=dict(sorted(excluded.items())),
        form_R=[encoded.forms_N[row] for row in rows],
        checks=check_tokens(table, encoded, rows, tokenizer),
    )


def _blank(responses: pl.Series, forms: Sequence[str]) -> dict[int, str]:
    """Rows without any response, and why: nothing there says how the policy reasons."""
    return {
        row: "null_response" if text is None else "empty_response"
        for row, (text, form) in enumerate(zip(responses, forms, strict=True))
        if form != "ids" and not (text or "").strip()
    }


def _unscorable(
    prompts: Sequence[Prompt | None], pieces: Sequence[Pieces], blank: Mapping[int, str]
) -> dict[int, str]:
    missing = {row: "no_prompt" for row, prompt in enumerate(prompts) if prompt is None}
    empty = {row: "empty_reasoning" for row, piece in enumerate(pieces) if not piece.reasoning_ids}
    unclear = {
        row: _REASONS[piece.status]
        for row, piece in enumerate(pieces)
        if piece.status is not SpanStatus.VALID
    }
    return {**empty, **unclear, **blank, **missing}


def _exclude_long(
    prompts: Sequence[Prompt | None],
    pieces: Sequence[Pieces],
    turns: Sequence[int],
    max_length: int,
    excluded: dict[int, str],
) -> None:
    """A row must fit under all its candidates, or the matrix would have holes.

    A long prompt costs its own rows, or else every long response of its turn: the prompt length
    that keeps the most rows is the longest that stays, the longer one of two that keep as many.
    """
    sizes: dict[int, dict[int, tuple[int, int]]] = {}
    for row, (prompt, piece) in enumerate(zip(prompts, pieces, strict=True)):
        if prompt is not None and row not in excluded:
            rest = len(opening_of(prompt, piece)) + len(piece.reasoning_ids)
            sizes.setdefault(turns[row], {})[row] = len(prompt.ids), rest
    for size in sizes.values():
        prompt_N, rest_N = np.array(list(size.values())).T
        kept = {
            int(longest): int(((prompt_N <= longest) & (longest + rest_N <= max_length)).sum())
            for longest in np.unique(prompt_N)
        }
        longest = max(kept, key=lambda length: (kept[length], length))
        for row, (prompt_length, rest) in size.items():
            if prompt_length > longest:
                excluded[row] = "prompt_too_long"
            elif longest + rest > max_length:
                excluded[row] = "too_long"


def _distinct(
    prompts: Sequence[Prompt | None], turns: Sequence[int]
) -> tuple[list[int], list[tuple[int, Prompt]]]:
    """Each row's key (-1 without a prompt), and what keys stand for: a prompt at a turn.

    Keys ascend with turn and ids: seeded draws then do not see the order of rows.
    """
    ids = {id(p): tuple(p.ids) for p in prompts if p is not None}
    known = [(row, (turns[row], ids[id(p)]), p) for row, p in enumerate(prompts) if p is not None]
    first = {name: prompt for _, name, prompt in reversed(known)}
    key_of = {name: key for key, name in enumerate(sorted(first))}
    keys = [-1] * len(prompts)
    for row, name, _ in known:
        keys[row] = key_of[name]
    return keys, [(name[0], first[name]) for name in key_of]


def _scored(keys: Sequence[int], excluded: Mapping[int, str]) -> list[int]:
    return sorted({key for row, key in enumerate(keys) if row not in excluded})


def _exclude_lone(
    keys: Sequence[int], distinct: Sequence[tuple[int, Prompt]], excluded: dict[int, str]
) -> None:
    prompts_at = Counter(distinct[key][0] for key in _scored(keys, excluded))
    # A single turn stays as it is: its entropy can still be told.
    if len(prompts_at) > 1:
        for row, key in enumerate(keys):
            if row not in excluded and prompts_at[distinct[key][0]] == 1:
                excluded[row] = "lone_turn"


def _exclude_unsampled(
    keys: Sequence[int], limit: int, seed: int, excluded: dict[int, str]
) -> None:
    scored = _scored(keys, excluded)
    if len(scored) <= limit:
        return
    drawn = np.random.default_rng(seed).choice(len(scored), size=limit, replace=False)
    kept = {scored[place] for place in drawn.tolist()}
    for row, key in enumerate(keys):
        if row not in excluded and key not in kept:
            excluded[row] = "not_sampled"


def _rollout_logp(
    logprobs: pl.Series, pieces: Sequence[Pieces], rows: Sequence[int]
) -> tuple[list[NDArray[np.float64] | None], dict[str, int]]:
    """The dump's log-probs of the tokens of Z, and how many rows lack what, by reason."""
    found: list[NDArray[np.float64] | None] = []
    lacking: Counter[str] = Counter()
    for row, values in zip(rows, logprobs.gather(list(rows)).to_list(), strict=True):
        piece = pieces[row]
        if not values or len(values) != len(piece.ids):
            lacking["length_differs" if values else "no_logprobs"] += 1
            found.append(None)
            continue
        of_reasoning = values[piece.start : piece.stop]
        logp_T = np.array([math.nan if v is None else v for v in of_reasoning], dtype=np.float64)
        lacking["undefined_tokens"] += bool(np.isnan(logp_T).any())
        found.append(logp_T)
    return found, {reason: n for reason, n in sorted(lacking.items()) if n}
