"""The rows of one training step with the reasoning span of each: what everything after reads.

Takes the canonical table apart into the lists and arrays that the metrics work on. Knows no model,
no formula and no verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ragen_diag.answers import find_answers
from ragen_diag.groups import Groups
from ragen_diag.metrics.answers import AnswerRows
from ragen_diag.metrics.reward_groups import RewardRows
from ragen_diag.metrics.text import Truncation, find_truncation
from ragen_diag.settings import Settings
from ragen_diag.spans import Span, SpanStatus, TagChoice, find_spans
from ragen_diag.tokens import Tokenizer, decode

SUCCESS_NAMES = ("success", "acc", "accuracy", "correct", "is_correct")
"""Reward components that say whether the task was solved, first found first taken."""


@dataclass(frozen=True)
class Step:
    """The rows of one training step with the reasoning span of each; N rows.

    `lengths_N` are response lengths in tokens, None where neither the dump nor a tokenizer tells.
    """

    table: pl.DataFrame
    choice: TagChoice
    spans: Sequence[Span]
    lengths_N: Sequence[int] | None

    @cached_property
    def responses(self) -> list[str]:
        """The response texts, empty where the dump has none."""
        return self.table["response"].fill_null("").to_list()

    @cached_property
    def groups(self) -> list[str]:
        """The reward group of each row."""
        return self.table["group_id"].to_list()

    @cached_property
    def reasoning(self) -> dict[int, str]:
        """Row -> reasoning text, of the rows with a valid span."""
        return {
            row: self.responses[row][span.start : span.end]
            for row, span in enumerate(self.spans)
            if span.status is SpanStatus.VALID
        }

    @cached_property
    def components(self) -> dict[str, NDArray[np.float64]]:
        """Reward component -> its values, NaN where a row lacks it."""
        rows = (
            self.table.select("reward_components")
            .with_row_index("row")
            .explode("reward_components", empty_as_null=False, keep_nulls=False)
        )
        named = rows.unnest("reward_components") if rows.height else None
        found: dict[str, NDArray[np.float64]] = {}
        if named is not None:
            for (key,), part in named.group_by("key", maintain_order=True):
                values_N = np.full(self.table.height, np.nan)
                values_N[part["row"].to_numpy()] = part["value"].fill_null(np.nan).to_numpy()
                found[str(key)] = values_N
        return found

    @cached_property
    def success_N(self) -> NDArray[np.float64] | None:
        """(N,) the success component, or None without one."""
        for name in SUCCESS_NAMES:
            if name in self.components:
                return self.components[name]
        return None

    @cached_property
    def truncation(self) -> Truncation | None:
        """Which responses ended at the length cap; None when nothing in the dump can tell."""
        reasons = self.table["finish_reason"].to_list()
        if self.lengths_N is None and all(reason in (None, "unknown") for reason in reasons):
            return None
        closed = [span.status is SpanStatus.VALID for span in self.spans]
        return find_truncation(
            reasons,
            self.lengths_N or [0] * len(reasons),
            self.responses,
            closed_N=closed if self.choice.tags is not None else None,
        )

    @cached_property
    def answer_rows(self) -> AnswerRows:
        """What each response gives as its answer, and what it earned: success or else reward."""
        rewards = self.table["reward"].fill_null(np.nan).to_numpy()
        return AnswerRows(
            answer_N=find_answers(self.table["response"].to_list(), self.spans, self.choice.tags),
            group_N=self.groups,
            earned_N=rewards if self.success_N is None else self.success_N,
            truth_N=self.table["ground_truth"].to_list(),
        )

    def reward_rows(self, settings: Settings) -> RewardRows:
        """The rewards as `metrics.reward` takes them."""
        return RewardRows(
            reward_N=self.table["reward"].fill_null(np.nan).to_numpy(),
            group_N=self.groups,
            texts_N=self.table["response"].to_list(),
            truncated_N=None if self.truncation is None else self.truncation.truncated_N,
            success_N=self.success_N,
            atol=settings.flat_atol,
            rtol=settings.flat_rtol,
        )

    def prompt_columns(self, groups: Groups | None) -> tuple[list[str], NDArray[np.int64]]:
        """Texts of the distinct prompts, and the column of every row (-1: in none).

        The scored columns where there are any; else the prompts that the dump tells apart.
        """
        if groups is not None and groups.prompts_P:
            return groups.prompts_P, groups.column_of_row
        column_of: dict[int, int] = {}
        columns = [column_of.setdefault(key, len(column_of)) for key in _prompt_keys(self.table)]
        texts = self.table["prompt"].fill_null("").to_list()
        first = {column: row for row, column in reversed(list(enumerate(columns)))}
        return [texts[first[column]] for column in range(len(first))], np.array(columns)

    def with_lengths(self, tokenizer: Tokenizer) -> "Step":
        """The same rows with their response lengths, counted by a tokenizer if need be."""
        if self.lengths_N is not None:
            return self
        ids = tokenizer(self.responses, add_special_tokens=False)["input_ids"]
        return replace(self, lengths_N=[len(row) for row in ids])


def _prompt_keys(table: pl.DataFrame) -> pl.Series:
    """What tells a row's prompt from another's when no tokenizer is at hand."""
    return table.select(pl.struct("prompt", "messages", "prompt_ids").hash()).to_series()


def distinct_prompts(table: pl.DataFrame) -> int:
    """Number of distinct prompts, by what the dump says of them."""
    return _prompt_keys(table).n_unique()


def has_ids(table: pl.DataFrame) -> bool:
    """Whether every row has the token ids of its prompt and of its response."""
    both = (pl.col("prompt_ids").list.len() > 0) & (pl.col("response_ids").list.len() > 0)
    return bool(table.select(both.fill_null(False).all()).item())


def with_texts_of_ids(table: pl.DataFrame, tokenizer: Tokenizer) -> tuple[pl.DataFrame, int]:
    """The rows with `prompt` and `response` decoded from their ids, where they have both.

    Trainers strip special tokens from the texts they write, think tags among them. Spans, groups
    and examples must all speak of the text that the model saw. Also returns how many responses
    say something else than their ids, with and without special tokens.
    """
    columns = table.select("prompt", "response", "prompt_ids", "response_ids")
    prompts: dict[tuple[int, ...], str] = {}
    told: list[tuple[str | None, str | None]] = []
    differing = 0
    for prompt, response, prompt_ids, response_ids in columns.iter_rows():
        if not prompt_ids or not response_ids:
            told.append((prompt, response))
            continue
        key = tuple(prompt_ids)
        if key not in prompts:
            prompts[key] = decode(tokenizer, prompt_ids)
        text = decode(tokenizer, response_ids)
        differing += response is not None and not _says(response, text, tokenizer, response_ids)
        told.append((prompts[key], text))
    prompt_texts, response_texts = zip(*told, strict=True)
    decoded = table.with_columns(
        prompt=pl.Series(prompt_texts, dtype=pl.String),
        response=pl.Series(response_texts, dtype=pl.String),
    )
    return decoded, differing


def _says(text: str, decoded: str, tokenizer: Tokenizer, ids: list[int]) -> bool:
    """Whether a dump's text is that of its ids, white space and special tokens aside."""
    bare = "".join(text.split())
    if bare == "".join(decoded.split()):
        return True
    plain = str(tokenizer.decode(ids, skip_special_tokens=True))
    return bare == "".join(plain.split())


def make_step(table: pl.DataFrame, choice: TagChoice) -> Step:
    """Find every row's reasoning span."""
    responses = table["response"].fill_null("").to_list()
    lengths = table["response_ids"].list.len()
    return Step(
        table=table,
        choice=choice,
        spans=find_spans(table["prompt"].to_list(), responses, choice),
        lengths_N=None if lengths.null_count() else lengths.to_list(),
    )
