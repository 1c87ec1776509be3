"""A block of pairs in, its scores out, by the first way of scoring that the probe finds right.

No list of architectures: a path that differs from the model's own forward, before or in the run
itself, is not taken, and the next one is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ragen_diag.errors import ScoringError
from ragen_diag.scoring.columns import PATHS, Columns, How, score_columns
from ragen_diag.scoring.journal import Journal
from ragen_diag.scoring.naive import token_logp
from ragen_diag.scoring.pairs import Pairs
from ragen_diag.scoring.probe import Pair, Probe
from ragen_diag.scoring.progress import Step
from ragen_diag.scoring.scores import Noise
from ragen_diag.scoring.unusable import PathUnusable


@dataclass(frozen=True)
class Chosen:
    """The scores of all pairs, by the path that `noise` names."""

    columns: Columns
    noise: Noise


def score_block(
    pairs: Pairs,
    probe: Probe,
    how: How,
    wanted: set[Pair],
    *,
    journal: Journal | None,
    label: str,
    advance: Callable[[Step], None],
) -> Chosen:
    """Score all pairs by the first path that agrees with the probe, alone and in the run.

    Raises:
        ScoringError: none agrees.
    """
    notes: list[str] = []
    for name in PATHS:
        try:
            alone = [_alone(name, probe, how) for _ in range(2)]
            noise = probe.noise(name, *alone)
            if noise.per_token <= noise.tolerance:
                columns = score_columns(
                    name,
                    pairs,
                    how,
                    wanted | probe.places.keys(),
                    journal=journal,
                    label=label,
                    advance=advance,
                )
                columns, retried = _retry_unfinished(columns, pairs, how)
                noise = probe.noise(name, *alone, columns.tokens)
                if noise.per_token <= noise.tolerance:
                    return Chosen(columns, replace(noise, note="; ".join(notes + retried) or None))
        except PathUnusable as error:
            notes.append(f"{name} path not taken: {error}")
            continue
        notes.append(
            f"{name} path differs from the reference by {noise.per_token:.1e} nats per token, "
            f"more than {noise.tolerance:.0e}"
        )
    raise ScoringError(
        f"no way of scoring agrees with this model's own forward: {'; '.join(notes)}"
    )


def _alone(name: str, probe: Probe, how: How) -> dict[Pair, NDArray[np.float64]]:
    """The probe's longest pair, by itself."""
    r, p = probe.longest
    columns = score_columns(name, probe.pairs.part([r], [p]), how, {(0, 0)})
    return {(r, p): columns.tokens[0, 0]}


def _retry_unfinished(columns: Columns, pairs: Pairs, how: How) -> tuple[Columns, list[str]]:
    """Score rows that are not finite one by one; says in words how many there were."""
    logp_UP, tokens = columns.logp_UP.copy(), dict(columns.tokens)
    rows = np.flatnonzero(~np.isfinite(logp_UP).all(axis=1)).tolist()
    if not rows:
        return columns, []
    for r in rows:
        for p, prompt_ids in enumerate(pairs.prompt_ids_P):
            logp_T = token_logp(
                how.model,
                prompt_ids,
                pairs.opening_ids_R[r],
                pairs.reasoning_ids_R[r],
                temperature=how.temperature,
            )
            logp_UP[r, p] = logp_T.sum()
            if (r, p) in tokens:
                tokens[r, p] = logp_T
    note = f"{len(rows)} rows were not finite in a batch and were scored one by one"
    return replace(columns, logp_UP=logp_UP, tokens=tokens), [note]
