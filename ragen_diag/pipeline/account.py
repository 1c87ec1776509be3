"""What a result tells of its inputs: dump, checkpoint, spans, scoring, counts, and the run itself.

Comes in: the values of the stages. Goes out: parts of `Result`. Measures and judges nothing.
"""

import platform
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from pydantic import JsonValue

from ragen_diag.metrics.agreement import share_within_noise
from ragen_diag.metrics.trials import FormatTrial
from ragen_diag.pipeline.modelled import Modelled
from ragen_diag.pipeline.step import Step
from ragen_diag.result import (
    CheckpointInput,
    Counts,
    DumpInput,
    Inputs,
    PromptFormats,
    Scoring,
    Spans,
)
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import Settings
from ragen_diag.spans import Prefill, SpanStatus

if TYPE_CHECKING:
    from ragen_diag.checkpoints.load import Checkpoint

LIBRARIES = ("numpy", "polars", "torch", "transformers")


def inputs(rollouts: Rollouts, step: Step, modelled: Modelled | None, settings: Settings) -> Inputs:
    """Everything that the numbers of a result depend on."""
    return Inputs(
        dump=dump_input(rollouts),
        checkpoint=None if modelled is None else checkpoint_input(modelled.checkpoint),
        spans=_spans(step),
        scoring=None if modelled is None else _scoring(modelled, settings),
        settings=settings.as_json(),
    )


def counts(step: Step, modelled: Modelled | None, prompts: int) -> Counts:
    """Rows, and those left out by reason; `prompts` are the distinct ones of the step."""
    excluded = {} if modelled is None else modelled.groups.excluded
    return Counts(
        rows=step.table.height,
        scored_rows=0 if modelled is None else len(modelled.groups.row_R),
        prompts=prompts,
        groups=step.table["group_id"].n_unique(),
        excluded=dict(sorted(Counter(excluded.values()).items())),
    )


def run_record(seconds: float, modelled: Modelled | None) -> dict[str, JsonValue]:
    """When, with what and at what cost a result was made: the one part that differs between equal
    inputs."""
    work = None if modelled is None or modelled.scores is None else modelled.scores.work
    return {
        "fed_tokens": None if work is None else work.fed_tokens,
        "resumed_pairs": None if work is None else work.resumed_pairs,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: version(name) for name in LIBRARIES},
    }


def dump_input(rollouts: Rollouts) -> DumpInput:
    """The dump, of which `rollouts` is one step."""
    sources = Counter(rollouts.table["group_source"].to_list())
    return DumpInput(
        paths=rollouts.paths,
        dialect=rollouts.dialect,
        rows=rollouts.table.height,
        sha256=rollouts.sha256,
        step=rollouts.steps[0],
        group_source=dict(sorted(sources.items())),
        notes=dict(sorted(rollouts.notes.items())),
    )


def checkpoint_input(checkpoint: "Checkpoint") -> CheckpointInput:
    """The checkpoint, and how the name given was resolved."""
    return CheckpointInput(
        path=checkpoint.path,
        found=checkpoint.found,
        revision=checkpoint.revision,
        fingerprint=checkpoint.fingerprint,
        stored_dtype=checkpoint.stored_dtype,
        dtype=checkpoint.dtype,
        device=checkpoint.device,
        reason=checkpoint.reason,
        step=checkpoint.step,
        notes=checkpoint.notes,
    )


def _spans(step: Step) -> Spans:
    states = Counter(span.status.value for span in step.spans)
    tags = step.choice.tags
    return Spans(
        open=None if tags is None else tags.open,
        close=None if tags is None else tags.close,
        prefilled=step.choice.prefilled is not Prefill.NO,
        reason=step.choice.reason,
        counts={status.value: states[status.value] for status in SpanStatus},
    )


def _scoring(modelled: Modelled, settings: Settings) -> Scoring | None:
    if modelled.scores is None:
        return None
    noise, work = modelled.scores.noise, modelled.scores.work
    groups = modelled.groups
    return Scoring(
        path=noise.path,
        batch_tokens=0 if work is None else work.batch_tokens,
        temperature=settings.temperature,
        noise_per_token=noise.per_token,
        noise_per_response=noise.per_response,
        probe_pairs=noise.pairs,
        rows_within_noise=share_within_noise(modelled.scores.logp_RP, noise.per_response),
        from_ids=groups.from_ids,
        retokenised=groups.retokenised,
        note=noise.note,
        prompt_forms=dict(sorted(Counter(groups.form_R).items())),
        prompt_formats=_formats(modelled.formats),
        against_template=modelled.against_template,
        round_trips=groups.checks.round_trips,
        replacements=groups.checks.replacements,
        double_bos=groups.checks.double_bos,
        logprobs_lacking=groups.logprobs_lacking,
    )


def _formats(trial: FormatTrial | None) -> PromptFormats | None:
    if trial is None:
        return None
    return PromptFormats(
        used=trial.used,
        rows=trial.rows,
        logp_per_token=trial.logp,
        best=trial.best,
        gain=trial.gain,
        standard_error=trial.error,
        look_stripped=trial.looks_stripped,
    )
