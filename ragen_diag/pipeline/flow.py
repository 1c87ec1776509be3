"""The whole flow of one analysis: dump -> spans -> scores -> metrics -> regime -> result.

The one place that knows every stage. Each stage receives what it needs and nothing more; torch is
imported only when there is a checkpoint to load.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ragen_diag.checkpoints.locate import Located, locate
from ragen_diag.dumps import read_dump
from ragen_diag.errors import DumpError, UsageError
from ragen_diag.groups import Groups, make_groups
from ragen_diag.judging.artefacts import find_artefacts, usable
from ragen_diag.judging.regimes import judge
from ragen_diag.judging.remarks import find_remarks
from ragen_diag.metrics import reward_groups
from ragen_diag.pipeline import account
from ragen_diag.pipeline.baseline import baseline_metrics
from ragen_diag.pipeline.examples import choose_examples, commonest_reasoning
from ragen_diag.pipeline.gathering import gather_evidence
from ragen_diag.pipeline.measurements import scored_metrics
from ragen_diag.pipeline.modelled import Modelled
from ragen_diag.pipeline.step import Step, make_step
from ragen_diag.pipeline.tables import group_table, prompt_table, response_ids, response_table
from ragen_diag.report.product import Product
from ragen_diag.result import Result
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import Settings
from ragen_diag.spans import TagChoice, choose_tags

MIN_PROMPTS = 2
"""With one prompt there is nothing to tell a response's own from."""

LOST_REASONING = frozenset({"no_reasoning_span", "empty_reasoning", "unclosed_reasoning"})
"""Reasons that are a finding about the policy, and no error of the input."""


class Observer(Protocol):
    """Who is told what happens while it happens."""

    def note(self, text: str) -> None:
        """A choice that was made."""

    def pairs(self, done: int, total: int) -> None:
        """(response, prompt) pairs scored so far."""


class Silent:
    """An observer that says nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def pairs(self, done: int, total: int) -> None:
        """Nothing."""


def analyze(
    dumps: str | Path | Sequence[str | Path],
    ckpt: str | None = None,
    *,
    settings: Settings | None = None,
    baseline: Result | None = None,
    observer: Observer | None = None,
) -> Product:
    """Analyse one step of a dump, with its checkpoint if there is one.

    `dumps` are files or folders; `ckpt` is a folder, a bare name looked up beside the dump, or a
    Hub id. Without it, what needs no model is measured and the regime is "not_judged". `baseline`
    is an earlier result: thresholds become relative to it.

    Raises:
        RagenDiagError: any input that cannot be read or used; the message names the next step.
    """
    started = time.monotonic()
    settings, observer = settings or Settings(), observer or Silent()
    paths = [Path(dumps)] if isinstance(dumps, str | Path) else [Path(path) for path in dumps]
    rollouts = read_dump(paths, reward=settings.reward)
    located = None if ckpt is None else locate(ckpt, paths)
    # Tags are a property of the run: chosen from all rows at hand, before one step is taken.
    choice = _choose_tags(rollouts, settings, baseline)
    rollouts = rollouts.at_step(_choose_step(rollouts, settings.step, located)).first_turns()
    observer.note(
        f"{rollouts.dialect} dump: {rollouts.table.height} responses of step {rollouts.steps[0]}"
    )
    step = make_step(rollouts.table, choice)
    modelled = None
    if located is not None:
        _require_prompts(step)
        step, modelled = _score(step, located, settings, observer)
    product = _judge(rollouts, step, modelled, settings, baseline)
    run = account.run_record(time.monotonic() - started)
    return replace(product, result=product.result.model_copy(update={"run": run}))


def _choose_tags(rollouts: Rollouts, settings: Settings, baseline: Result | None) -> TagChoice:
    requested = settings.reasoning_tags
    if requested == "auto" and baseline is not None:
        # A step that lost its format altogether must not be read as one that never had tags.
        spans = baseline.inputs.spans
        requested = (spans.open, spans.close) if spans.open and spans.close else "none"
    table = rollouts.table
    return choose_tags(
        table["prompt"].to_list(), table["response"].fill_null("").to_list(), requested
    )


def _choose_step(rollouts: Rollouts, wanted: int | None, located: Located | None) -> int | None:
    """The step asked for, else the only one, else the checkpoint's."""
    steps = rollouts.steps
    if wanted is not None:
        return wanted
    if len(steps) == 1:
        return steps[0]
    if located is not None and located.step in steps:
        return located.step
    known = [str(step) for step in steps if step is not None]
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    raise UsageError(f"{rollouts.paths[0]}: {len(steps)} steps ({shown}); choose one with --step")


def _require_prompts(step: Step) -> None:
    if step.distinct_prompts < MIN_PROMPTS:
        raise DumpError(
            f"{step.table['_file'][0]}: {step.distinct_prompts} distinct prompt; telling prompts"
            f" apart needs at least {MIN_PROMPTS}: analyse a dump with more, or leave --ckpt out"
            " for the reward side alone"
        )


def _score(
    step: Step, located: Located, settings: Settings, observer: Observer
) -> tuple[Step, Modelled]:
    """Load the checkpoint, score every response under every prompt, and measure."""
    from ragen_diag.checkpoints.load import open_checkpoint
    from ragen_diag.scoring import score
    from ragen_diag.scoring.batches import default_budget

    checkpoint = open_checkpoint(
        located,
        dtype=settings.dtype,
        device=settings.device,
        revision=settings.revision,
        tokenizer=settings.tokenizer,
    )
    observer.note(f"checkpoint {checkpoint.path} ({located.how})")
    observer.note(f"{checkpoint.dtype} on {checkpoint.device}: {checkpoint.reason}")
    step = step.with_lengths(checkpoint.tokenizer)
    groups = make_groups(
        step.table,
        step.spans,
        step.choice.tags,
        checkpoint.tokenizer,
        limit=settings.limit,
        seed=settings.seed,
        max_length=checkpoint.max_length,
    )
    _require_scorable(step, groups)
    accelerator = not checkpoint.device.startswith("cpu")
    budget = settings.batch_tokens or default_budget(checkpoint.vocab_size, accelerator=accelerator)
    scores = measured = None
    if len(groups.row_R):
        ids = response_ids(step.table.height)
        scores = score(
            checkpoint,
            groups,
            response_ids=[ids[row] for row in groups.row_R],
            batch_tokens=budget,
            temperature=settings.temperature,
            on_progress=observer.pairs,
        )
        measured = scored_metrics(step, groups, scores, settings)
    return step, Modelled(
        checkpoint=checkpoint,
        found=located.how,
        groups=groups,
        scores=scores,
        measured=measured,
        batch_tokens=budget,
    )


def _require_scorable(step: Step, groups: Groups) -> None:
    """Rows that cannot be scored are an error, unless the policy lost its reasoning."""
    reasons = Counter(groups.excluded.values())
    lost = step.choice.tags is not None and not LOST_REASONING.isdisjoint(reasons)
    if not len(groups.row_R) and not lost:
        listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        raise DumpError(
            f"{step.table['_file'][0]}: no response can be scored ({listed}); look at"
            " --reasoning-tags and the checkpoint's context length, or leave --ckpt out"
        )


def _judge(
    rollouts: Rollouts,
    step: Step,
    modelled: Modelled | None,
    settings: Settings,
    baseline: Result | None,
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
            tags=(None, None) if tags is None else (tags.open, tags.close),
        )
    evidence = gather_evidence(
        step, modelled, rewards, settings, dump_step=rollouts.steps[0], baseline=reference
    )
    evidence = replace(evidence, metrics=usable(evidence.metrics))
    findings = tuple(find_artefacts(evidence) + find_remarks(evidence))
    prompts, column_of_row = step.prompt_columns(None if modelled is None else modelled.groups)
    result = Result(
        inputs=account.inputs(rollouts, step, modelled, settings),
        counts=account.counts(step, modelled, len(prompts)),
        metrics=evidence.metrics,
        reward=evidence.reward,
        regime=judge(
            evidence.metrics, math.log(max(len(prompts), 1)), findings, baseline=reference
        ),
        findings=findings,
        run={},
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
