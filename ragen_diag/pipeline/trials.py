"""A few rows scored in other ways, where the way they were scored in is in doubt.

Comes in: a step, its groups and the checkpoint. Goes out: comparisons, for the findings to judge.
Nothing is switched by itself. The rows are drawn by the seed, of different prompts first.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragen_diag.encoding import EncodedRows, encode_rows, opening_of
from ragen_diag.errors import DumpError
from ragen_diag.groups import Groups
from ragen_diag.judging.mismatch import mismatch
from ragen_diag.metrics.trials import (
    FormatTrial,
    TemperatureTrial,
    format_trial,
    temperature_trial,
)
from ragen_diag.pipeline.modelled import Modelled
from ragen_diag.pipeline.step import Step
from ragen_diag.prompts.forms import PromptReader
from ragen_diag.settings import PromptFormat, Settings

if TYPE_CHECKING:
    from ragen_diag.checkpoints.load import Checkpoint

ROWS = 8
"""At most so many rows are scored again."""
FORMATS: tuple[PromptFormat, ...] = ("raw", "rendered", "messages", "stripped")
TEMPERATURES = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)

Fed = tuple[list[int], list[int], list[int]]
"""Prompt, opening and reasoning as ids."""


def with_trials(step: Step, modelled: Modelled, settings: Settings) -> Modelled:
    """With what the trials say, where there is something to try."""
    scores, measured = modelled.scores, modelled.measured
    if scores is None or measured is None:
        return modelled
    checkpoint, groups = modelled.checkpoint, modelled.groups
    doubtful = mismatch(measured.gap, scores.noise.per_token) is not None
    return replace(
        modelled,
        formats=try_formats(checkpoint, step, groups, settings),
        temperatures=try_temperatures(checkpoint, groups, settings) if doubtful else None,
    )


def try_formats(
    checkpoint: "Checkpoint", step: Step, groups: Groups, settings: Settings
) -> FormatTrial | None:
    """Score rows whose prompts are plain text under the other formats too.

    None where nothing is in doubt: a format was asked for, no prompt is plain text, or the
    tokenizer has no chat template. A format that a row cannot be brought into, or that gives the
    ids of an earlier one, is left out.
    """
    tokenizer, tags = checkpoint.tokenizer, step.choice.tags
    plain = [r for r, form in enumerate(groups.form_R) if form == "raw"]
    if settings.prompt_format != "auto" or not tokenizer.chat_template or not plain:
        return None
    rows = groups.row_R[_draw(groups, plain, settings.seed)].tolist()
    table, spans = step.table[rows], [step.spans[row] for row in rows]
    ways: dict[str, list[Fed]] = {}
    for name in FORMATS:
        try:
            fed = _fed(encode_rows(table, spans, tags, tokenizer, name))
        except DumpError:
            continue
        if fed not in ways.values() and _fits(fed, checkpoint.max_length):
            ways[name] = fed
    if "raw" not in ways:
        return None
    reader = PromptReader(tokenizer, tags, "auto")
    stripped = sum(reader.messages_of(text) is not None for text in table["prompt"])
    logp = {
        name: [float(_score(checkpoint, *row, settings.temperature).mean()) for row in fed]
        for name, fed in ways.items()
    }
    return format_trial(logp, "raw", stripped)


def try_temperatures(
    checkpoint: "Checkpoint", groups: Groups, settings: Settings
) -> TemperatureTrial | None:
    """Compare the dump's log-probs with ours at several temperatures; None if it has none."""
    known = [
        r
        for r, logp_T in enumerate(groups.rollout_logp_R)
        if logp_T is not None and np.isfinite(logp_T).any()
    ]
    if not known:
        return None
    rows = _draw(groups, known, settings.seed)
    gaps = {
        temperature: np.concatenate([_gap(checkpoint, groups, r, temperature) for r in rows])
        for temperature in dict.fromkeys((settings.temperature, *TEMPERATURES))
    }
    return temperature_trial(gaps, settings.temperature, len(rows))


def _draw(groups: Groups, among: list[int], seed: int) -> list[int]:
    """Up to ROWS scored rows: one of each prompt, then further ones, in their order."""
    shuffled = np.random.default_rng(seed).permutation(among).tolist()
    first = {int(groups.own_R[r]): r for r in reversed(shuffled)}
    ordered = [*first.values(), *(r for r in shuffled if r not in first.values())]
    return sorted(ordered[:ROWS])


def _fed(encoded: EncodedRows) -> list[Fed]:
    return [
        ([] if prompt is None else prompt.ids, opening_of(prompt, piece), piece.reasoning_ids)
        for prompt, piece in zip(encoded.prompts_N, encoded.pieces_N, strict=True)
    ]


def _fits(rows: list[Fed], max_length: int | None) -> bool:
    limit = float("inf") if max_length is None else max_length
    whole = [(len(prompt) + len(opening), len(reasoning)) for prompt, opening, reasoning in rows]
    return all(before and tokens and before + tokens <= limit for before, tokens in whole)


def _gap(
    checkpoint: "Checkpoint", groups: Groups, r: int, temperature: float
) -> NDArray[np.float64]:
    dumped_T = groups.rollout_logp_R[r]
    assert dumped_T is not None
    prompt = groups.prompt_ids_P[int(groups.own_R[r])]
    opening, reasoning = groups.opening_ids_R[r], groups.reasoning_ids_R[r]
    gap_T = _score(checkpoint, prompt, opening, reasoning, temperature) - dumped_T
    return gap_T[np.isfinite(gap_T)]


def _score(
    checkpoint: "Checkpoint",
    prompt: list[int],
    opening: list[int],
    reasoning: list[int],
    temperature: float,
) -> NDArray[np.float64]:
    # Imports torch, which this package does without until there is a model.
    from ragen_diag.scoring.naive import token_logp

    return token_logp(checkpoint.model, prompt, opening, reasoning, temperature=temperature)
