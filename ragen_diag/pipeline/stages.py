"""One step of a run, from its canonical rows to its product: spans -> scores -> metrics -> regime.

The one place that knows every stage of a step. Each stage receives what it needs and nothing more;
what the rows and the model come from is not known here.
"""

import math
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from ragen_diag.encoding import against_template
from ragen_diag.errors import DumpError, UsageError
from ragen_diag.groups import Groups, make_groups
from ragen_diag.judging.artefacts import find_artefacts, usable
from ragen_diag.judging.regimes import judge
from ragen_diag.judging.remarks import find_remarks
from ragen_diag.metrics import reward_groups
from ragen_diag.pipeline import account
from ragen_diag.pipeline.baseline import baseline_metrics
from ragen_diag.pipeline.episodes import with_earned_components
from ragen_diag.pipeline.examples import choose_examples, commonest_reasoning
from ragen_diag.pipeline.gathering import gather_evidence
from ragen_diag.pipeline.measurements import scored_metrics
from ragen_diag.pipeline.modelled import Modelled
from ragen_diag.pipeline.observer import Observer
from ragen_diag.pipeline.step import (
    Step,
    distinct_prompts,
    has_ids,
    make_step,
    with_texts_of_ids,
)
from ragen_diag.pipeline.tables import group_table, prompt_table, response_id, response_table
from ragen_diag.pipeline.trials import with_trials
from ragen_diag.report.product import Product
from ragen_diag.result import Result
from ragen_diag.rollouts import Rollouts
from ragen_diag.scoring.estimate import estimate
from ragen_diag.settings import Settings
from ragen_diag.spans import TagChoice, choose_tags

if TYPE_CHECKING:
    from ragen_diag.checkpoints.load import Checkpoint

MIN_PROMPTS = 2
"""With one prompt there is nothing to tell a response's own from."""

LOST_REASONING = frozenset(
    {"no_reasoning_span", "empty_reasoning", "unclosed_reasoning", "empty_response"}
)
"""Reasons that are a finding about the policy, and no error of the input."""


def scoped(run: Rollouts, number: int | None, settings: Settings) -> Rollouts:
    """The rows of one step, of the turns that are analysed."""
    rollouts = with_earned_components(run.at_step(number), settings.reading.reward_reduce)
    return rollouts.in_scope(settings.scope, seed=settings.seed)


def measure_step(
    rollouts: Rollouts,
    choice: TagChoice,
    checkpoint: "Checkpoint | None",
    settings: Settings,
    baseline: Result | None,
    *,
    observer: Observer,
    started: float,
) -> Product:
    """Score the rows of one step under `checkpoint`, if there is one, measure and judge.

    With a checkpoint the texts of `rollouts` are those of `retold`. `started` is the monotonic
    time at which the work began.
    """
    step = make_step(rollouts.table, choice)
    modelled = None
    if checkpoint is not None:
        step = step.with_lengths(checkpoint.tokenizer)
        modelled = _score(step, checkpoint, settings, observer)
    return _judge(rollouts, step, modelled, settings, baseline, started=started)


def choose_run_tags(
    run: Rollouts, rollouts: Rollouts, settings: Settings, baseline: Result | None
) -> TagChoice:
    """The tags of the whole run at hand, of which `rollouts` is one step: they do not change."""
    requested = settings.reasoning_tags
    if requested == "auto" and baseline is not None:
        # A step that lost its format altogether must not be read as one that never had tags.
        spans = baseline.inputs.spans
        requested = (spans.open, spans.close) if spans.open and spans.close else "none"
    rest = run.table.filter(pl.col("step").ne_missing(rollouts.table["step"][0]))
    texts = pl.concat([part.select("prompt", "response") for part in (rollouts.table, rest)])
    responses = texts["response"].fill_null("").to_list()
    asked = settings.reasoning_tags
    if isinstance(asked, tuple) and not any(tag in text for text in responses for tag in asked):
        raise UsageError(
            f"--reasoning-tags {','.join(asked)}: no response has either tag; leave the option out,"
            " or if the policy lost them, name a step that has them as --baseline"
        )
    return choose_tags(
        texts["prompt"].to_list(), responses, requested, complete=has_ids(rollouts.table)
    )


def require_usable(rollouts: Rollouts, *, scored: bool) -> None:
    """Refuse a step that is two batches in one, or too small to be scored, before any loading."""
    table, path = rollouts.table, rollouts.paths[0]
    splits = table["split"].drop_nulls().value_counts(sort=True).rows()
    if len(splits) > 1:
        listed = ", ".join(f"{split} {rows}" for split, rows in splits)
        raise DumpError(
            f"{path}: step {table['step'][0]} mixes rows of several splits ({listed}); choose one"
            f" with --split {splits[0][0]}"
        )
    prompts = distinct_prompts(table)
    if scored and prompts < MIN_PROMPTS:
        raise DumpError(
            f"{table['_file'][0]}: {prompts} distinct prompt; telling prompts apart needs at least"
            f" {MIN_PROMPTS}: analyse a dump with more, or leave --ckpt out for the reward side"
            " alone"
        )


def retold(rollouts: Rollouts, checkpoint: "Checkpoint") -> Rollouts:
    """The same rows with the texts of their token ids."""
    table, differing = with_texts_of_ids(rollouts.table, checkpoint.tokenizer)
    notes = {"text_differs_from_ids": differing} if differing else {}
    return replace(rollouts, table=table, notes={**rollouts.notes, **notes})


def step_groups(step: Step, checkpoint: "Checkpoint", settings: Settings) -> Groups:
    """The rows of a step as token ids: distinct prompts, responses, and whose is whose."""
    return make_groups(
        step.table,
        step.spans,
        step.choice.tags,
        checkpoint.tokenizer,
        limit=settings.limit,
        seed=settings.seed,
        max_length=checkpoint.max_length,
        prompt_format=settings.prompt_format,
    )


def _score(
    step: Step, checkpoint: "Checkpoint", settings: Settings, observer: Observer
) -> Modelled:
    """Score every response under every prompt, and measure."""
    from ragen_diag.scoring import Resume, score

    groups = step_groups(step, checkpoint, settings)
    _require_scorable(step, groups)
    if len(groups.row_R):
        observer.note(_expected(checkpoint, groups, settings))
    unfinished = observer.unfinished()
    scores = measured = None
    if len(groups.row_R):
        scores = score(
            checkpoint,
            groups,
            response_ids=[response_id(int(row)) for row in groups.row_R],
            batch_tokens=settings.batch_tokens,
            temperature=settings.temperature,
            on_progress=observer.scored,
            resume=None if unfinished is None else Resume(unfinished, checkpoint.fingerprint),
        )
        measured = scored_metrics(step, groups, scores, settings)
    modelled = Modelled(
        checkpoint=checkpoint,
        groups=groups,
        scores=scores,
        measured=measured,
        against_template=against_template(step.table, checkpoint.tokenizer),
    )
    return with_trials(step, modelled, settings)


def _expected(checkpoint: "Checkpoint", groups: Groups, settings: Settings) -> str:
    told = estimate(
        checkpoint.model.config,
        groups,
        number_bytes=checkpoint.model.dtype.itemsize,
        accelerator=not checkpoint.device.startswith("cpu"),
        batch_tokens=settings.batch_tokens,
    )
    return (
        f"scoring {told.pairs:,} pairs: {told.tokens:,} tokens in passes of {told.batch_tokens:,},"
        f" about {told.memory / 1e6:,.0f} MB beside the weights"
    )


def _require_scorable(step: Step, groups: Groups) -> None:
    """Rows that cannot be scored are an error, unless the policy lost its reasoning."""
    reasons = Counter(groups.excluded.values())
    lost = step.choice.tags is not None and not LOST_REASONING.isdisjoint(reasons)
    if not len(groups.row_R) and not lost:
        listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        raise DumpError(
            f"{step.table['_file'][0]}: no response can be scored ({listed}); look at --scope,"
            " --reasoning-tags and the checkpoint's context length, or leave --ckpt out"
        )


def _judge(
    rollouts: Rollouts,
    step: Step,
    modelled: Modelled | None,
    settings: Settings,
    baseline: Result | None,
    *,
    started: float,
) -> Product:
    """Metrics, findings and regime, with the tables and texts that explain them."""
    rewards = step.reward_rows(settings)
    reference = None
    if baseline is not None:
        tags = step.choice.tags
        reference = baseline_metrics(
            baseline,
            temperature=settings.temperature,
            compat=settings.compat,
            prompt_format=settings.prompt_format,
            tags=(None, None) if tags is None else (tags.open, tags.close),
            scope=str(settings.scope),
        )
    evidence = gather_evidence(rollouts, step, modelled, rewards, settings, baseline=reference)
    evidence = replace(evidence, metrics=usable(evidence.metrics))
    findings = tuple(find_artefacts(evidence) + find_remarks(evidence))
    prompts, column_of_row = step.prompt_columns(None if modelled is None else modelled.groups)
    bound = evidence.value("mi_upper_bound")
    result = Result(
        inputs=account.inputs(rollouts, step, modelled, settings),
        counts=account.counts(step, modelled, len(prompts)),
        metrics=evidence.metrics,
        reward=evidence.reward,
        regime=judge(
            evidence.metrics,
            math.log(max(len(prompts), 1)) if bound is None else bound,
            findings,
            baseline=reference,
            yardstick=settings.yardstick,
        ),
        findings=findings,
        run=account.run_record(time.monotonic() - started, modelled),
    )
    scored = modelled.measured.rows if modelled is not None and modelled.measured else None
    excluded = {} if modelled is None else modelled.groups.excluded
    groups = reward_groups.group_table(rewards)
    return Product(
        result=result,
        responses=response_table(step, excluded, scored),
        prompts=prompt_table(step.table, column_of_row, prompts, groups, scored),
        groups=group_table(groups),
        scores=None if modelled is None else modelled.scores,
        examples=choose_examples(step, excluded, prompts, scored),
        commonest=commonest_reasoning(step, column_of_row, prompts),
        baseline=baseline,
    )
