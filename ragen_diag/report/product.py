"""What the reports are made from: the result, small frames, and a handful of texts.

The pipeline builds a `Product`; the renderers read it. Knows no rendering and no measuring.
"""

from dataclasses import dataclass
from typing import Literal

import polars as pl

from ragen_diag.result import Result
from ragen_diag.scoring.scores import Scores

ExampleKind = Literal["best_grounded", "least_grounded", "excluded"]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One response shown in the report, with what makes it worth showing.

    `response[start:end]` is the reasoning. Log-probabilities are nats per response; `margin` is
    the own prompt's minus the best other prompt's, so it is negative where another prompt explains
    the reasoning better. `reason` says why an excluded response was not scored.
    """

    kind: ExampleKind
    response_id: str
    prompt: str
    response: str
    start: int = 0
    end: int = 0
    column: int | None = None
    n_tokens: int | None = None
    reward: float | None = None
    matched: float | None = None
    margin: float | None = None
    best_column: int | None = None
    best_prompt: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A prompt that got the commonest reasoning text: how often, and with what reward."""

    column: int
    prompt: str
    rows: int
    reward_mean: float | None = None


@dataclass(frozen=True, kw_only=True)
class Commonest:
    """The commonest reasoning text of the batch and some of the prompts it was the answer to."""

    text: str
    rows: int
    share: float
    prompts: int
    answered: tuple[Answered, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Product:
    """Everything that the reports of one analysis show.

    `responses` and `prompts` are the tables of the same names in the out folder; the length plot
    also reads the columns `span`, `response_length` (tokens) and `truncated` (bool) of the former
    where they are there. `groups` has a row per reward group: `group_id`, `n` rewards,
    `reward_mean`, `reward_var` (ddof 1, null below two), `flat` (why it does not vary, null where
    it does) and `bucket` ("Q1".."Q6", null where it does not vary). `scores` is None
    without a checkpoint. `baseline` is an earlier result to draw beside this one.
    """

    result: Result
    responses: pl.DataFrame
    prompts: pl.DataFrame
    groups: pl.DataFrame
    scores: Scores | None = None
    examples: tuple[Example, ...] = ()
    commonest: Commonest | None = None
    baseline: Result | None = None
