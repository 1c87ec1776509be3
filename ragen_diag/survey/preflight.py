"""A checkpoint before it is loaded: where it is, whether it is whole, and whether it fits the dump.

Reads headers and configuration, never a tensor; imports no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ragen_diag.checkpoints.adapter import AdapterFiles
from ragen_diag.checkpoints.gguf import GgufFiles
from ragen_diag.checkpoints.layouts import Files, inspect
from ragen_diag.checkpoints.locate import Located, locate
from ragen_diag.errors import CheckpointError, UsageError
from ragen_diag.rollouts import listing
from ragen_diag.survey.facts import Checkpoint, Problem, problem
from ragen_diag.survey.tokenizer import TokenCounter


@dataclass
class Preflight:
    """What is known of the checkpoint and the tokenizer, and what is wrong with them."""

    checkpoint: Checkpoint | None = None
    counter: TokenCounter | None = None
    no_counter: str = "no tokenizer given: see --tokenizer and --ckpt"
    """Why tokens cannot be counted."""
    problems: list[Problem] = field(default_factory=list)


def check(
    ckpt: str | None,
    tokenizer: str | None,
    dump_paths: Sequence[Path],
    *,
    base_model: str | None = None,
) -> Preflight:
    """Find and inspect the checkpoint, if one is named, and open the tokenizer, if there is one."""
    found = Preflight()
    located = None if ckpt is None else _locate(ckpt, dump_paths, found)
    files = None if located is None else _inspect(located, tokenizer, base_model, found)
    source = tokenizer
    if source is None and located is not None:
        source = files.tokenizer if isinstance(files, AdapterFiles) else str(located.path)
        source = located.hub_id or source
    if source is not None:
        try:
            found.counter = TokenCounter(source)
        except CheckpointError as error:
            found.no_counter = str(error)
            if tokenizer is not None:
                found.problems.append(problem("tokenizer_not_opened", "warning", str(error)))
    if located is not None:
        found.checkpoint = _facts(located, files, found.counter)
    return found


def fit_problems(
    found: Preflight,
    steps: Sequence[int | None],
    measured: int,
    largest_id: int | None,
    too_long: int,
) -> list[Problem]:
    """Where the checkpoint does not fit the dump: its step, its vocabulary, its context.

    `largest_id` is the largest token id that occurs in the sample; of its `measured` rows
    `too_long` are longer than the context.
    """
    checkpoint = found.checkpoint
    if checkpoint is None:
        return []
    problems = []
    # A dump that names no step says nothing against any.
    named = [step for step in steps if step is not None]
    if checkpoint.step is not None and named and checkpoint.step not in named:
        problems.append(
            problem(
                "step_mismatch",
                "warning",
                f"the checkpoint is of step {checkpoint.step}, and the dump of steps"
                f" {listing(named)}; score each step with the policy that sampled it",
            )
        )
    problems += _vocabulary(checkpoint, largest_id)
    if too_long:
        problems.append(
            problem(
                "too_long",
                "warning",
                f"{too_long:,} of {measured:,} sampled rows are longer than the model's context"
                f" of {checkpoint.context:,} tokens, and cannot be scored; is it the checkpoint"
                " that sampled them?",
            )
        )
    return problems


def _vocabulary(checkpoint: Checkpoint, largest_id: int | None) -> list[Problem]:
    known, tokenizers = checkpoint.vocabulary, checkpoint.largest_token_id
    if known is None:
        return []
    if largest_id is not None and largest_id >= known:
        return [
            problem(
                "token_beyond_vocabulary",
                "error",
                f"token id {largest_id} occurs in the dump, but the model has ids 0 to {known - 1};"
                " give the tokenizer and the checkpoint that belong together",
            )
        ]
    if tokenizers is not None and tokenizers >= known:
        return [
            problem(
                "vocabulary_too_small",
                "warning",
                f"the tokenizer has token id {tokenizers}, but the model only ids 0 to"
                f" {known - 1}; is it the tokenizer of this checkpoint?",
            )
        ]
    return []


def _locate(ckpt: str, dump_paths: Sequence[Path], found: Preflight) -> Located | None:
    try:
        located = locate(ckpt, dump_paths)
    except CheckpointError as error:
        found.problems.append(problem("checkpoint_unusable", "error", str(error)))
        found.no_counter = "no checkpoint"
        return None
    if located.hub_id is not None:
        message = f"{located.how} is not looked at, as nothing is downloaded here"
        found.problems.append(problem("checkpoint_on_hub", "note", message))
    return located


def _inspect(
    located: Located, tokenizer: str | None, base_model: str | None, found: Preflight
) -> Files | None:
    if located.path is None:
        return None
    try:
        files = inspect(located.path, tokenizer=tokenizer, base_model=base_model)
    except (CheckpointError, UsageError) as error:
        found.problems.append(problem("checkpoint_unusable", "error", str(error)))
        return None
    if isinstance(files, AdapterFiles) and files.base_files is None:
        message = (
            f"the adapter's base, {files.base.how}, is not looked at, as nothing is downloaded here"
        )
        found.problems.append(problem("checkpoint_on_hub", "note", message))
    if isinstance(files, GgufFiles) and files.quantised:
        message = (
            f"GGUF weights quantised to {files.stored_dtype}: these are not the log-probs of the"
            " policy that was trained"
        )
        found.problems.append(problem("checkpoint_quantised", "warning", message))
    return files


def _facts(located: Located, files: Files | None, counter: TokenCounter | None) -> Checkpoint:
    return Checkpoint(
        found=located.how,
        path=located.hub_id or str(located.path),
        step=located.step,
        stored_dtype=None if files is None else files.stored_dtype,
        weight_bytes=None if files is None else files.weight_bytes,
        vocabulary=None if files is None else files.vocabulary,
        largest_token_id=None if counter is None else counter.largest_id,
        context=None if files is None else files.max_length,
    )
