"""A sample of the texts -> reasoning tags, lengths in tokens, and truncation."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ragen_diag.judging import thresholds as cuts
from ragen_diag.metrics.text import find_truncation
from ragen_diag.spans import Span, SpanStatus, TagChoice, choose_tags, find_spans
from ragen_diag.survey.facts import Problem, Quantiles, Sample, Truncation, problem
from ragen_diag.survey.tokenizer import TokenCounter

MOST_CHARACTERS = 4_000_000
"""A second's worth of encoding; with long texts fewer rows of the sample are counted."""


@dataclass(frozen=True)
class Sampled:
    """The facts of the sample, and what else of it is needed to judge a checkpoint.

    `total_N` are tokens of prompt and response together, of the rows where both are known."""

    facts: Sample
    truncation: Truncation
    total_N: Sequence[int]
    largest_id: int | None


@dataclass(frozen=True)
class _Counted:
    """Tokens of each row's prompt or response, None where unknown; `largest` is the largest id."""

    lengths_N: list[int | None]
    largest: int | None


def look_at(
    table: pl.DataFrame,
    finish_reasons: Mapping[str, int],
    counter: TokenCounter | None,
    no_counter: str,
) -> Sampled:
    """The facts of the rows that were drawn; `finish_reasons` are of all rows of the dump.

    Lengths are those of the dump's own ids where a row has them, else of its texts by `counter`;
    `no_counter` says why there is none.
    """
    responses = table["response"].fill_null("").to_list()
    prompts = table["prompt"].to_list()
    both = (pl.col("prompt_tokens") > 0) & (pl.col("response_tokens") > 0)
    has_ids = bool(table.select(both.fill_null(False).all()).item())
    choice = choose_tags(prompts, responses, "auto", complete=has_ids)
    spans = find_spans(prompts, responses, choice)
    states = Counter(span.status.value for span in spans)
    measured = table if has_ids else _within(table, MOST_CHARACTERS)
    prompt, response = (_count(measured, name, counter) for name in ("prompt", "response"))
    pairs = zip(prompt.lengths_N, response.lengths_N, strict=True)
    total_N = [p + r for p, r in pairs if p is not None and r is not None]
    facts = Sample(
        rows=table.height,
        tags=None if choice.tags is None else f"{choice.tags.open} ... {choice.tags.close}",
        tags_reason=choice.reason,
        spans={status.value: states[status.value] for status in SpanStatus},
        lengths_by=_counted_by(measured, has_ids, counter, no_counter),
        prompt_tokens=_quantiles(prompt.lengths_N),
        response_tokens=_quantiles(response.lengths_N),
        total_tokens=_quantiles(total_N),
    )
    seen = [part.largest for part in (prompt, response) if part.largest is not None]
    return Sampled(
        facts=facts,
        truncation=_truncation(measured, finish_reasons, response, spans, choice),
        total_N=total_N,
        largest_id=max(seen, default=None),
    )


def sample_problems(sampled: Sampled) -> list[Problem]:
    """What the texts say against an analysis."""
    facts, share = sampled.facts, sampled.truncation.share
    found = []
    if facts.rows and facts.tags is None:
        message = "no known reasoning tags in any sampled row: whole responses would be scored"
        found.append(problem("no_reasoning_tags", "note", f"{message}; see --reasoning-tags"))
    elif facts.rows and facts.spans["valid"] < cuts.VALID_THINKING * facts.rows:
        found.append(
            problem(
                "few_valid_spans",
                "warning",
                f"{facts.spans['valid']:,} of {facts.rows:,} sampled responses have reasoning"
                f" within {facts.tags}; the others cannot be scored",
            )
        )
    if share is not None and share >= cuts.TRUNCATED_SHARE:
        message = f"{share:.0%} of the responses ended at the length cap ({sampled.truncation.how})"
        found.append(
            problem("truncated", "warning", f"{message}: metrics would describe their beginnings")
        )
    return found


def _within(table: pl.DataFrame, characters: int) -> pl.DataFrame:
    """The first rows of the sample, which are in random order, up to so many characters."""
    texts = pl.col("prompt", "response").str.len_chars().fill_null(0)
    so_far = table.select(pl.sum_horizontal(texts).cum_sum()).to_series()
    return table.head(max(1, int((so_far <= characters).sum())))


def _count(table: pl.DataFrame, name: str, counter: TokenCounter | None) -> _Counted:
    lengths_N = table[f"{name}_tokens"].to_list()
    largest = table["largest_id"].max()
    texts = table[name].to_list()
    missing = [
        row
        for row, (length, text) in enumerate(zip(lengths_N, texts, strict=True))
        if length is None and text is not None
    ]
    seen = [largest] if isinstance(largest, int) else []
    if counter is not None and missing:
        for row, ids in zip(missing, counter.ids([texts[row] for row in missing]), strict=True):
            lengths_N[row] = len(ids)
            seen += [max(ids)] if ids else []
    return _Counted(lengths_N, max(seen, default=None))


def _counted_by(
    table: pl.DataFrame, has_ids: bool, counter: TokenCounter | None, no_counter: str
) -> str:
    if has_ids:
        return f"token ids of {table.height:,} sampled rows"
    if counter is None:
        return no_counter
    return f"{counter.source}, {table.height:,} sampled rows"


def _quantiles(lengths_N: Sequence[int | None]) -> Quantiles | None:
    known = [length for length in lengths_N if length is not None]
    if not known:
        return None
    median, p99, most = np.quantile(known, (0.5, 0.99, 1.0), method="nearest")
    return Quantiles(median=int(median), p99=int(p99), max=int(most))


def _truncation(
    table: pl.DataFrame,
    finish_reasons: Mapping[str, int],
    response: _Counted,
    spans: Sequence[Span],
    choice: TagChoice,
) -> Truncation:
    """By the finish reasons of all rows, else by what piles up at the largest length."""
    counts = dict(sorted(finish_reasons.items()))
    total = sum(counts.values())
    if total - counts.get("unknown", 0):
        share = counts.get("length", 0) / total
        return Truncation(how="finish reasons", share=share, finish_reasons=counts)
    known = [row for row, length in enumerate(response.lengths_N) if length is not None]
    if not known:
        how = "not told: no finish reasons, and no lengths in tokens"
        return Truncation(how=how, share=None, finish_reasons=counts)
    texts = table["response"].fill_null("").to_list()
    closed = [spans[row].status is SpanStatus.VALID for row in known]
    found = find_truncation(
        [None] * len(known),
        [response.lengths_N[row] or 0 for row in known],
        [texts[row] for row in known],
        closed_N=closed if choice.tags is not None else None,
    )
    return Truncation(
        how=f"{found.how}; {len(known):,} sampled rows",
        share=found.share.value,
        finish_reasons=counts,
    )
