"""Whether answers depend on the prompt, and what an empty one earns.

Comes in: each response's answer ("" for an empty one, None where none can be told), its group
(prompt), and what it earned. Goes out: counts. Knows no reasoning, no models and no verdicts. N
rows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.text import normal

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class AnswerRows:
    """The answers of one step.

    `earned_N` is the success component or else the reward, NaN where unscored; `truth_N` the
    expected answers, None where the dump does not tell. White space in answers does not count.
    """

    answer_N: Sequence[str | None]
    group_N: Sequence[str]
    earned_N: FloatArray
    truth_N: Sequence[str | None] | None = None

    @cached_property
    def texts(self) -> list[str | None]:
        """The answers with white space normalised."""
        return [None if answer is None else normal(answer) for answer in self.answer_N]

    @cached_property
    def by_group(self) -> dict[str, Counter[str]]:
        """How often each answer occurs in each group that has one; groups in first-seen order."""
        counted: dict[str, Counter[str]] = {}
        for group, text in zip(self.group_N, self.texts, strict=True):
            if text is not None:
                counted.setdefault(group, Counter())[text] += 1
        return counted


@dataclass(frozen=True, kw_only=True)
class AnswerSummary:
    """Counts over the rows of a step.

    `answers` were found, `empty` of them hold nothing, `missing` rows have none that can be told.
    `best` is the most that any row earned, `at_best` the share of scored rows that earned it,
    `empty_scored` and `empty_at_best` count empty answers that were scored, and that earned it;
    `varies` says whether rows earned different values. `prompts` have an answer, in `sharing` of
    them no answer is commoner than the batch's `commonest`. `truths` is the number of different
    expected answers, None when some are unknown.
    """

    answers: int
    empty: int
    missing: int
    best: float | None
    at_best: float | None
    varies: bool
    empty_scored: int
    empty_at_best: int
    prompts: int
    sharing: int
    commonest: str | None
    truths: int | None


def answer_summary(rows: AnswerRows, *, atol: float = 1e-9) -> AnswerSummary:
    """Count; `atol` is how far from the best a row may be that earned as much.

    >>> rows = AnswerRows(answer_N=["", "", "7"], group_N=["a", "b", "b"], earned_N=np.ones(3))
    >>> found = answer_summary(rows)
    >>> (found.empty, found.empty_at_best), (found.sharing, found.prompts), found.commonest
    ((2, 2), (2, 2), '')
    """
    texts = rows.texts
    empty_N = np.array([text == "" for text in texts], dtype=np.bool_)
    scored_N = np.isfinite(rows.earned_N)
    earned = rows.earned_N[scored_N]
    best = float(earned.max()) if earned.size else None
    at_best_N = scored_N & (rows.earned_N >= (0.0 if best is None else best) - atol)
    groups = rows.by_group
    commonest = commonest_answer(rows)
    return AnswerSummary(
        answers=sum(text is not None for text in texts),
        empty=int(empty_N.sum()),
        missing=sum(text is None for text in texts),
        best=best,
        at_best=float(at_best_N[scored_N].mean()) if earned.size else None,
        varies=bool(earned.size) and float(np.ptp(earned)) > atol,
        empty_scored=int((empty_N & scored_N).sum()),
        empty_at_best=int((empty_N & at_best_N).sum()),
        prompts=len(groups),
        sharing=sum(
            commonest is not None and counted[commonest] == max(counted.values())
            for counted in groups.values()
        ),
        commonest=commonest,
        truths=_truths(rows.truth_N),
    )


def commonest_answer(rows: AnswerRows) -> str | None:
    """The commonest answer of the batch, the first in order of those equally common; None without
    answers."""
    counted = Counter(sorted(text for text in rows.texts if text is not None))
    return counted.most_common(1)[0][0] if counted else None


def distinct_answer_ratio(rows: AnswerRows) -> float | None:
    """Number of different answers among the commonest of each prompt, over prompts; None without
    answers. Of a prompt's equally common answers the batch's commoner counts.

    >>> answers = ["4", "4", "5", "4", "4", "9"]
    >>> distinct_answer_ratio(
    ...     AnswerRows(answer_N=answers, group_N=list("aaabbb"), earned_N=np.ones(6))
    ... )
    0.5
    """
    groups = rows.by_group
    if not groups:
        return None
    total = sum(groups.values(), Counter())
    chosen = {
        min(counted, key=lambda text: (-counted[text], -total[text], text))
        for counted in groups.values()
    }
    return len(chosen) / len(groups)


def _truths(truth_N: Sequence[str | None] | None) -> int | None:
    if truth_N is None or any(truth is None for truth in truth_N):
        return None
    return len(set(truth_N))
