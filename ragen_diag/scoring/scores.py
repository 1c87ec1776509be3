"""`Scores`: how likely every response is under every prompt, and how exact these numbers are.

Kept as `scores.parquet`, so that whatever follows can be run again without a model. Knows no torch.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ragen_diag.errors import ResultError

NOISE_KEY = "ragen_diag.noise"
FEWEST_TOKENS = 8
"""Rounding does not shrink with the row: one token of a sound model is off by 2e-5 nats."""

SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "response_id": pl.String,
    "own": pl.Int64,
    "n_tokens": pl.Int64,
    "logp": pl.List(pl.Float64),
    "own_token_logp": pl.List(pl.Float64),
}


@dataclass(frozen=True)
class Noise:
    """How far equal pairs came apart when they were scored in different ways.

    Largest absolute difference over `pairs` pairs, between the one-by-one reference, the chosen
    `path` ("ragged", "prefix" or "full") with a pair alone and the same path in the run's batches.
    """

    per_token: float
    """Nats per token; a row of fewer than `FEWEST_TOKENS` counts as one of that many."""
    per_response: float
    """Nats per response: a margin between two columns below this decides nothing."""
    pairs: int
    tolerance: float
    """Nats per token that the path was allowed; it depends on the dtype alone."""
    path: str
    note: str | None = None
    """Why the faster path was not taken, or which rows needed the reference."""


def worst(noises: Sequence[Noise]) -> Noise:
    """What holds for several matrices alike: the largest differences, over all probed pairs.

    Different paths and notes are told side by side. At least one is needed.
    """
    notes = Counter(noise.note for noise in noises if noise.note is not None)
    told = [note if n == 1 else f"{note} ({n} times)" for note, n in notes.items()]
    return Noise(
        per_token=max(noise.per_token for noise in noises),
        per_response=max(noise.per_response for noise in noises),
        pairs=sum(noise.pairs for noise in noises),
        tolerance=max(noise.tolerance for noise in noises),
        path=", ".join(dict.fromkeys(noise.path for noise in noises)),
        note="; ".join(told) or None,
    )


@dataclass(frozen=True)
class Work:
    """What the scores cost, in numbers that do not depend on the machine's speed."""

    batch_tokens: int
    """Largest number of tokens in one pass."""
    fed_tokens: int
    """Tokens that went through the model in this run, the probe left out."""
    head_rows: int
    """Hidden states that became logits."""
    resumed_pairs: int = 0
    """Pairs of distinct rows that an earlier run that was stopped had scored."""

    def __add__(self, other: "Work") -> "Work":
        return Work(
            max(self.batch_tokens, other.batch_tokens),
            self.fed_tokens + other.fed_tokens,
            self.head_rows + other.head_rows,
            self.resumed_pairs + other.resumed_pairs,
        )


@dataclass(frozen=True)
class Scores:
    """The matrix L of RAGEN-2 (arXiv 2604.06268, Sec. 2.3) for one step.

    `logp_RP[r, p]` is log p(Z_r given X_p) in nats, summed over the `n_tokens_R[r]` tokens of Z_r;
    finite and <= 0 up to rounding where p is a prompt of r's turn, -inf where it is none and so no
    candidate. `own_R[r]` is the column of the prompt that row r was sampled from.
    """

    logp_RP: NDArray[np.float64]
    n_tokens_R: NDArray[np.int64]
    own_R: NDArray[np.int64]
    response_ids: list[str]
    own_logp_R: list[NDArray[np.float64]]
    """Each row's tokens of Z under the row's own prompt: log p of each in nats, (T_r,)."""
    noise: Noise
    work: Work | None = None
    """None for scores that were read back."""


def write_scores(scores: Scores, path: str | Path) -> None:
    """Write `scores.parquet`: a row per response, all at once or not at all.

    A column that is no candidate of a row is null in it.
    """
    path = Path(path)
    columns = {
        "response_id": scores.response_ids,
        "own": scores.own_R,
        "n_tokens": scores.n_tokens_R,
        "logp": [[None if x == -np.inf else x for x in row] for row in scores.logp_RP.tolist()],
        "own_token_logp": [logp_T.tolist() for logp_T in scores.own_logp_R],
    }
    partial = path.with_name(path.name + ".partial")
    pl.DataFrame(columns, schema=SCHEMA).write_parquet(
        partial, metadata={NOISE_KEY: json.dumps(asdict(scores.noise), sort_keys=True)}
    )
    os.replace(partial, path)


def read_scores(path: str | Path) -> Scores:
    """Read what `write_scores` wrote, bit for bit.

    Raises:
        ResultError: not a file of scores, or its rows have different numbers of columns.
    """
    path = Path(path)
    try:
        table = pl.read_parquet(path, glob=False)
        noise = pl.read_parquet_metadata(path).get(NOISE_KEY)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ResultError(f"{path}: cannot be read as scores: {_first_line(error)}") from error
    if noise is None or dict(table.schema) != dict(SCHEMA):
        raise ResultError(f"{path}: not a file of scores; run `ragen-diag analyze` again")
    if table["logp"].list.len().n_unique() > 1 or table["logp"].null_count():
        raise ResultError(f"{path}: rows have different numbers of prompts; the file is damaged")
    logp = table["logp"].list.eval(pl.element().fill_null(-np.inf))
    return Scores(
        logp_RP=np.array(logp.to_list(), dtype=np.float64).reshape(len(table), -1),
        n_tokens_R=table["n_tokens"].to_numpy().copy(),
        own_R=table["own"].to_numpy().copy(),
        response_ids=table["response_id"].to_list(),
        own_logp_R=[np.array(logp) for logp in table["own_token_logp"].to_list()],
        noise=Noise(**_mapping(noise)),
    )


def _mapping(text: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(text)
    return values


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
