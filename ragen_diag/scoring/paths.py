"""Which way of scoring may be trusted with this model, and how exact it is: measured, not assumed.

No list of architectures: a few pairs go through the path and through the one-by-one reference,
and a path that differs is not taken. Knows no files and no metrics.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ragen_diag.errors import ScoringError
from ragen_diag.scoring.full import score_full
from ragen_diag.scoring.naive import score_naive
from ragen_diag.scoring.pairs import Pairs
from ragen_diag.scoring.prefix import PathUnusable, score_prefix
from ragen_diag.scoring.scores import FEWEST_TOKENS, Noise

TOLERANCE = {"float64": 2e-5, "float32": 2e-5, "float16": 5e-3, "bfloat16": 5e-2}
"""Nats per token between two ways of scoring one pair. float32: rounding gives 1e-7 to 1e-5, a
wrong mask, cache or position 1e-3 to 10. The half precisions are allowed what the shape of a
batch alone changes in them (single tokens by 0.1, a row's mean by 0.01)."""

PATHS: dict[str, Callable[..., NDArray[np.float64]]] = {
    "prefix": score_prefix,
    "full": score_full,
}
"""In the order they are tried."""

# What a model's own code raises when it is handed a cache that it was not written for.
MODEL_ERRORS = (PathUnusable, AttributeError, IndexError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Probe:
    """A few pairs and their scores by the reference, (rows, columns) nats."""

    row_N: list[int]
    column_N: list[int]
    pairs: Pairs
    logp_NN: NDArray[np.float64]
    tolerance: float

    def noise(self, path: str, *others_NN: NDArray[np.float64]) -> Noise:
        """The largest difference of other scores of the same pairs; NaN if one is not finite."""
        differences = [np.abs(other_NN - self.logp_NN) for other_NN in others_NN]
        tokens_N1 = np.array([[max(len(z), FEWEST_TOKENS)] for z in self.pairs.reasoning_ids_R])
        return Noise(
            per_token=float(np.max([d / tokens_N1 for d in differences])),
            per_response=float(np.max(differences)),
            pairs=self.logp_NN.size,
            tolerance=self.tolerance,
            path=path,
        )


def make_probe(model: Any, pairs: Pairs, *, temperature: float, dtype: str) -> Probe:
    """Score some pairs one by one: longest and median prompt x longest, longer and median row.

    The longest pair goes past any attention window and rotary threshold that the run goes past.
    Always the same pairs for the same lengths.

    """
    rows = zip(pairs.opening_ids_R, pairs.reasoning_ids_R, strict=True)
    length_R = [len(opening) + len(reasoning) for opening, reasoning in rows]
    row_N = _quantiles(length_R, (1.0, 0.75, 0.5))
    column_N = _quantiles([len(x) for x in pairs.prompt_ids_P], (1.0, 0.5))
    part = pairs.part(row_N, column_N)
    logp_NN = score_naive(model, *_fields(part), temperature=temperature)
    return Probe(row_N, column_N, part, logp_NN, TOLERANCE[dtype])


def score_pairs(
    model: Any,
    pairs: Pairs,
    probe: Probe,
    *,
    batch_tokens: int,
    temperature: float,
    advance: Callable[[int], None],
) -> tuple[NDArray[np.float64], Noise]:
    """Score all pairs by the first path that agrees with the probe, before and after.

    Raises:
        ScoringError: none agrees.
    """
    settings: dict[str, Any] = {"batch_tokens": batch_tokens, "temperature": temperature}
    notes: list[str] = []
    for name, path in PATHS.items():
        try:
            alone_NN = path(model, *_fields(probe.pairs), **settings)
        except MODEL_ERRORS as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            notes.append(f"{name} path failed: {type(error).__name__}: {error}".splitlines()[0])
            continue
        noise = probe.noise(name, alone_NN)
        if noise.per_token <= noise.tolerance:
            logp_RP = path(model, *_fields(pairs), **settings, advance=advance)
            retried = _retry_unfinished(model, pairs, logp_RP, temperature)
            noise = probe.noise(name, alone_NN, logp_RP[np.ix_(probe.row_N, probe.column_N)])
            if noise.per_token <= noise.tolerance:
                return logp_RP, replace(noise, note="; ".join(notes + retried) or None)
        notes.append(
            f"{name} path differs from the reference by {noise.per_token:.1e} nats per token, "
            f"more than {noise.tolerance:.0e}"
        )
    raise ScoringError(
        f"no way of scoring agrees with this model's own forward: {'; '.join(notes)}"
    )


def _retry_unfinished(
    model: Any, pairs: Pairs, logp_RP: NDArray[np.float64], temperature: float
) -> list[str]:
    """Score rows that are not finite one by one, in place; says in words how many there were."""
    row_N = np.flatnonzero(~np.isfinite(logp_RP).all(axis=1)).tolist()
    if not row_N:
        return []
    part = pairs.part(row_N, range(len(pairs.prompt_ids_P)))
    logp_RP[row_N] = score_naive(model, *_fields(part), temperature=temperature)
    return [f"{len(row_N)} rows were not finite in a batch and were scored one by one"]


Ids = Sequence[Sequence[int]]


def _fields(pairs: Pairs) -> tuple[Ids, Ids, Ids]:
    return pairs.prompt_ids_P, pairs.opening_ids_R, pairs.reasoning_ids_R


def _quantiles(lengths: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Distinct places of the items at these shares of the order by length, ties in input order."""
    order = np.argsort(lengths, kind="stable")
    return list(dict.fromkeys(int(order[round(share * (len(order) - 1))]) for share in shares))
