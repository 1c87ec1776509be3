"""The prompts whose responses lost most of their hold on the input between two steps.

Comes in: a row per response of each step, with how well its own prompt and the mixture explain it.
Goes out: a few prompts with a few responses of both steps, unescaped. Words and judges nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

PROMPTS, SAMPLES = 5, 2
MOST_GROUNDED = 2
"""Of `PROMPTS` places, where the steps have other prompts; the least grounded have the rest."""

Kind = Literal["same_prompt", "least_grounded", "most_grounded"]


@dataclass(frozen=True)
class Sample:
    """One response; `gap` is matched - marginal in nats per response."""

    response_id: str
    prompt: str
    response: str
    reasoning: str
    reward: float | None
    gap: float


@dataclass(frozen=True)
class Pair:
    """Responses before and after, side by side.

    `prompt` is theirs for the kind "same_prompt", and None for the other two, where those before
    and those after answer different prompts. `gap_before` and `gap_after` are the means over all
    scored responses of that prompt at that step.
    """

    kind: Kind
    prompt: str | None
    before: tuple[Sample, ...]
    after: tuple[Sample, ...]
    gap_before: float
    gap_after: float


@dataclass(frozen=True)
class _Answers:
    """All scored responses to one prompt, in their order."""

    prompt: str
    gap: float
    samples: tuple[Sample, ...]

    @property
    def typical(self) -> tuple[Sample, ...]:
        """Those whose gaps are nearest to the mean, in their order."""
        off = [abs(sample.gap - self.gap) for sample in self.samples]
        nearest = sorted(range(len(off)), key=off.__getitem__)[:SAMPLES]
        return tuple(self.samples[place] for place in sorted(nearest))


def changed_prompts(before: pl.DataFrame, after: pl.DataFrame) -> list[Pair]:
    """At most five prompts, with two responses each from before and from after.

    Columns: `prompt`, `response`, `reasoning`, `response_id` (str), `matched` and `marginal` (nats
    per response, null where a row was not scored: such rows are not looked at), `reward` (may be
    null). A prompt is the same if its text is. Where the steps share five prompts, or all that one
    of them has, these are the shared ones whose mean gap fell most (those of the largest rise come
    last); otherwise the three least and the two most grounded prompts of each step, place by
    place. Of a prompt's responses the ones with gaps nearest to its mean are shown. Ties go to
    what comes first in `before`, or in the prompt's own step. Empty if a step has no scored row.
    """
    first, second = _by_prompt(before), _by_prompt(after)
    shared = [prompt for prompt in first if prompt in second]
    if len(shared) >= min(PROMPTS, len(first), len(second)):
        pairs = [_pair("same_prompt", first[prompt], second[prompt]) for prompt in shared]
        return sorted(pairs, key=lambda pair: pair.gap_after - pair.gap_before)[:PROMPTS]
    return _side_by_side(list(first.values()), list(second.values()))


def _by_prompt(frame: pl.DataFrame) -> dict[str, _Answers]:
    scored = frame.with_columns(gap=pl.col("matched") - pl.col("marginal")).filter(
        pl.col("gap").is_finite(), pl.col("prompt").is_not_null()
    )
    columns = scored.select("response_id", "prompt", "response", "reasoning", "reward", "gap")
    samples: dict[str, list[Sample]] = {}
    for row in columns.iter_rows():
        sample = Sample(*row)
        samples.setdefault(sample.prompt, []).append(sample)
    return {
        prompt: _Answers(prompt, sum(sample.gap for sample in own) / len(own), tuple(own))
        for prompt, own in samples.items()
    }


def _side_by_side(first: Sequence[_Answers], second: Sequence[_Answers]) -> list[Pair]:
    few = min(len(first), len(second), PROMPTS)
    most = min(MOST_GROUNDED, few // 2)
    ranked = [sorted(step, key=lambda answers: answers.gap) for step in (first, second)]
    # From the other end of the same order, so that no prompt is at both.
    best = [step[::-1] for step in ranked]
    least_pairs = zip(*(step[: few - most] for step in ranked), strict=True)
    most_pairs = zip(*(step[:most] for step in best), strict=True)
    return [_pair("least_grounded", *pair) for pair in least_pairs] + [
        _pair("most_grounded", *pair) for pair in most_pairs
    ]


def _pair(kind: Kind, first: _Answers, second: _Answers) -> Pair:
    return Pair(
        kind=kind,
        prompt=first.prompt if kind == "same_prompt" else None,
        before=first.typical,
        after=second.typical,
        gap_before=first.gap,
        gap_after=second.gap,
    )
