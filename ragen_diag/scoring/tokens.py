"""A few rows of groups in, every token of theirs under every candidate prompt out.

By the same ways of scoring as the whole matrix, which keeps sums alone: for reading, not for
measuring. Knows no files and no metrics.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragen_diag.scoring.checks import Policy, check
from ragen_diag.scoring.columns import enough_memory
from ragen_diag.scoring.pairs import Crossing, blocks
from ragen_diag.scoring.progress import Progress, count_steps
from ragen_diag.scoring.threads import fitting_threads
from ragen_diag.scoring.turns import how_to_score, score_turn


@dataclass(frozen=True)
class _Asked:
    """Some rows of groups under all their columns."""

    prompt_ids_P: list[list[int]]
    turn_P: NDArray[np.int64]
    opening_ids_R: list[list[int]]
    reasoning_ids_R: list[list[int]]
    own_R: NDArray[np.int64]


def score_tokens(
    checkpoint: Policy,
    groups: Crossing,
    rows: Sequence[int],
    *,
    response_ids: Sequence[str],
    batch_tokens: int | None = None,
    temperature: float = 1.0,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[NDArray[np.float64]]:
    """log p(z_t given prompt p, the row's opening and z_<t) for each of `rows`, (P, T_r) each.

    In nats; -inf for columns of other turns. `rows` are places among the rows of `groups`, whose
    names `response_ids` are; the result is in their order. A row's sum over tokens is its row of
    `Scores.logp_RP` up to rounding. Keeps P x T_r numbers for each row, and reads every prompt of
    the rows' turns, which most of the cost is: ask for all rows at once.

    Raises:
        ScoringError: as `score` does.
    """
    names = [response_ids[r] for r in rows]
    asked = _Asked(
        prompt_ids_P=groups.prompt_ids_P,
        turn_P=groups.turn_P,
        opening_ids_R=[groups.opening_ids_R[r] for r in rows],
        reasoning_ids_R=[groups.reasoning_ids_R[r] for r in rows],
        own_R=groups.own_R[list(rows)],
    )
    check(checkpoint, asked, names)
    how = how_to_score(checkpoint, batch_tokens, temperature)
    apart = blocks(asked)
    advance = count_steps(on_progress, sum(block.pairs.size for block in apart))
    told = [np.full((len(asked.prompt_ids_P), len(z)), -np.inf) for z in asked.reasoning_ids_R]
    with fitting_threads(checkpoint.model), enough_memory():
        for block in apart:
            every = set(np.ndindex(len(block.first_U), len(block.column_P)))
            chosen = score_turn(block, how, names, every, journal=None, label="", advance=advance)
            for r, place in zip(block.row_N.tolist(), block.place_N.tolist(), strict=True):
                for column, p in enumerate(block.column_P.tolist()):
                    told[r][p] = chosen.columns.tokens[place, column]
    return told
