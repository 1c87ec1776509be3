"""A handful of responses worth reading: the best and least grounded, and the commonest reasoning.

Comes in: the canonical rows with their spans and per-row scores. Goes out: texts for the report,
unescaped. Measures and words nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.text import normal
from ragen_diag.pipeline.step import Step
from ragen_diag.pipeline.tables import ScoredRows, response_id
from ragen_diag.report.product import Answered, Commonest, Example, ExampleKind

PER_KIND = 3
ANSWERED_SHOWN = 6


def choose_examples(
    step: Step, excluded: Mapping[int, str], prompts: Sequence[str], scored: ScoredRows | None
) -> tuple[Example, ...]:
    """The best grounded responses, the least grounded ones, and some that were left out.

    Grounding is the margin per token of the own prompt over the best other one. At most three of
    a kind, one per prompt, in an order that depends on the data alone.
    """
    chosen: list[Example] = []
    if scored is not None and scored.margin_R is not None:
        per_token_R = scored.margin_R / scored.n_tokens_R
        order = np.argsort(per_token_R, kind="stable")
        ranking: tuple[tuple[ExampleKind, NDArray[np.int64]], ...] = (
            ("least_grounded", order),
            ("best_grounded", order[::-1]),
        )
        for kind, ranked in ranking:
            for r in _one_per_prompt(ranked.tolist(), scored):
                chosen.append(_scored_example(kind, r, step, prompts, scored))
    table = step.table
    for row, reason in _one_per_reason(excluded):
        chosen.append(
            Example(
                kind="excluded",
                response_id=response_id(row),
                prompt=table["prompt"][row] or "",
                response=step.responses[row],
                reward=table["reward"][row],
                reason=reason,
            )
        )
    return tuple(chosen)


def _one_per_prompt(ranked: Sequence[int], scored: ScoredRows) -> list[int]:
    first_of: dict[int, int] = {}
    for r in ranked:
        first_of.setdefault(int(scored.own_R[r]), r)
        if len(first_of) == PER_KIND:
            break
    return list(first_of.values())


def _one_per_reason(excluded: Mapping[int, str]) -> list[tuple[int, str]]:
    first_of: dict[str, int] = {}
    for row in sorted(excluded):
        if excluded[row] != "not_sampled":
            first_of.setdefault(excluded[row], row)
    return [(row, reason) for reason, row in first_of.items()][:PER_KIND]


def _scored_example(
    kind: ExampleKind,
    r: int,
    step: Step,
    prompts: Sequence[str],
    scored: ScoredRows,
) -> Example:
    row, own, best = int(scored.row_R[r]), int(scored.own_R[r]), int(scored.best_column_R[r])
    assert scored.margin_R is not None
    return Example(
        kind=kind,
        response_id=response_id(row),
        prompt=prompts[own],
        response=step.responses[row],
        start=step.spans[row].start,
        end=step.spans[row].end,
        column=own,
        n_tokens=int(scored.n_tokens_R[r]),
        reward=step.table["reward"][row],
        matched=float(scored.matched_R[r]),
        margin=float(scored.margin_R[r]),
        best_column=best,
        best_prompt=prompts[best] if best != own else None,
    )


def commonest_reasoning(
    step: Step, column_of_row: NDArray[np.int64], prompts: Sequence[str]
) -> Commonest | None:
    """The reasoning text that most responses share, or None when no two share one.

    Of the rows with a valid span; `column_of_row` is the prompt of every row of the step, -1 for
    none. Texts are compared with white space normalised.
    """
    texts = {row: normal(text) for row, text in step.reasoning.items() if column_of_row[row] >= 0}
    counted = Counter(sorted(texts.values()))
    if not counted:
        return None
    text, rows = counted.most_common(1)[0]
    if rows < 2:
        return None
    sharing: dict[int, list[int]] = {}
    for row, other in texts.items():
        if other == text:
            sharing.setdefault(int(column_of_row[row]), []).append(row)
    rewards = step.table["reward"].fill_null(float("nan")).to_numpy()
    answered = tuple(
        Answered(
            column=column,
            prompt=prompts[column],
            rows=len(members),
            reward_mean=_mean(rewards[members]),
        )
        for column, members in sorted(sharing.items())[:ANSWERED_SHOWN]
    )
    return Commonest(
        text=text, rows=rows, share=rows / len(texts), prompts=len(sharing), answered=answered
    )


def _mean(rewards: NDArray[np.float64]) -> float | None:
    finite = rewards[np.isfinite(rewards)]
    return float(finite.mean()) if finite.size else None
