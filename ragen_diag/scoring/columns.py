"""All columns of a block by one way of scoring, piece by piece, each kept as soon as it is there.

Rows go in pieces under all prompts, so that what is finished when a run stops can be used. Knows
which ways there are and how they are handled; which is right is not decided here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ragen_diag.errors import ScoringError
from ragen_diag.scoring.batches import default_budget, default_chunk
from ragen_diag.scoring.full import Full
from ragen_diag.scoring.journal import Journal, Record
from ragen_diag.scoring.pairs import Pairs, piece_tokens, row_pieces
from ragen_diag.scoring.prefix import Prefix
from ragen_diag.scoring.probe import Pair
from ragen_diag.scoring.progress import Step
from ragen_diag.scoring.ragged import Ragged
from ragen_diag.scoring.scores import Work
from ragen_diag.scoring.unusable import PathUnusable

PATHS = ("ragged", "prefix", "full")
"""In the order they are tried: each is slower than the one before, and right for more models."""

LENGTH_DEPENDENT = ("dynamic", "longrope", "'su'")
"""Rotary types whose frequencies depend on the length of the sequence at hand."""

_MODEL_ERRORS = (
    *(AttributeError, IndexError, KeyError, NotImplementedError),
    *(RuntimeError, TypeError, ValueError),
)


class Path(Protocol):
    """A way of scoring the columns of some pairs."""

    @property
    def order(self) -> Sequence[int]:
        """All columns, in the order in which they are cheapest."""

    @property
    def tokens(self) -> int:
        """Tokens of the rows that one column feeds."""

    @property
    def fed_tokens(self) -> int:
        """Tokens that went through the model so far."""

    @property
    def head_rows(self) -> int:
        """Hidden states that became logits so far."""

    def session(self) -> AbstractContextManager[None]:
        """What columns must be asked for within."""

    def column(self, p: int) -> NDArray[np.float64]:
        """Log-probability of every scored token under prompt p, rows after one another."""


@dataclass(frozen=True, kw_only=True)
class How:
    """How to score: the dtype and size of the model's numbers, and what the user chose."""

    model: Any
    dtype: str
    vocab_size: int
    accelerator: bool
    batch_tokens: int | None
    temperature: float


@dataclass(frozen=True)
class Columns:
    """(rows, columns) sums in nats, and the single tokens of the wanted pairs."""

    logp_UP: NDArray[np.float64]
    tokens: Mapping[Pair, NDArray[np.float64]]
    work: Work


@contextmanager
def enough_memory() -> Iterator[None]:
    """Say in words that memory ran out: no other path is tried then, as it would need more."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise ScoringError(
                "out of memory while scoring; try a smaller --batch-tokens, such as 128, or "
                "--dtype bfloat16"
            ) from error
        raise


@contextmanager
def _model_errors() -> Iterator[None]:
    """What a model's own code raises when it is handed what it was not written for."""
    try:
        with enough_memory():
            yield
    except _MODEL_ERRORS as error:
        raise PathUnusable(f"{type(error).__name__}: {error}".splitlines()[0]) from error


@_model_errors()
def open_path(name: str, pairs: Pairs, how: How) -> tuple[Path, int]:
    """A way of scoring, and the tokens of its passes.

    Raises:
        PathUnusable: it can't be taken with this model.
    """
    if name != "full":
        _require_steady_rope(how.model.config, pairs)
    if name == "ragged":
        size = {"float64": 8, "float32": 4}.get(how.dtype, 2)
        chunk = how.batch_tokens or default_chunk(
            how.model.config, size, accelerator=how.accelerator
        )
        return Ragged(how.model, pairs, chunk=chunk, temperature=how.temperature), chunk
    budget = how.batch_tokens or default_budget(how.vocab_size, accelerator=how.accelerator)
    path = Prefix if name == "prefix" else Full
    return path(how.model, pairs, batch_tokens=budget, temperature=how.temperature), budget


def _require_steady_rope(config: Any, pairs: Pairs) -> None:
    """Refuse what reads a prompt once, where rotary frequencies depend on the whole length: a pair
    may cross the bound that its prompt alone does not, which no few probed pairs would show."""
    tables = [getattr(config, name, None) for name in ("rope_parameters", "rope_scaling")]
    told = " ".join(map(str, tables))
    if not any(kind in told for kind in LENGTH_DEPENDENT):
        return
    holders = [config, *(table for table in tables if isinstance(table, dict))]
    bounds = [_value(holder, "original_max_position_embeddings") for holder in holders]
    if "dynamic" in told:
        bounds.append(_value(config, "max_position_embeddings"))
    bound = min((b for b in bounds if isinstance(b, int)), default=0)
    longest = max(map(len, pairs.prompt_ids_P)) + int(pairs.stop_R.max())
    if longest > bound:
        raise PathUnusable(f"rotary frequencies change beyond {bound} tokens")


def _value(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def score_columns(
    name: str,
    pairs: Pairs,
    how: How,
    wanted: set[Pair],
    *,
    journal: Journal | None = None,
    label: str = "",
    advance: Callable[[Step], None] = lambda step: None,
) -> Columns:
    """Every row under every column. `label` tells this block's records in the journal from others.

    Raises:
        PathUnusable: the path can't be taken with this model.
        UsageError: the journal can't be written.
    """
    logp_UP = np.full((len(pairs.rows_R), len(pairs.prompt_ids_P)), np.nan)
    tokens: dict[Pair, NDArray[np.float64]] = {}
    work = Work(0, 0, 0)
    pieces = row_pieces(pairs, piece_tokens(pairs))
    every = range(len(pairs.prompt_ids_P))
    for number, rows in enumerate(pieces):
        part = pairs if len(pieces) == 1 else pairs.part(rows.tolist(), every)
        path, batch_tokens = open_path(name, part, how)
        resumed = 0
        with path.session():
            for p in path.order:
                keep = [place for place, r in enumerate(rows.tolist()) if (r, p) in wanted]
                record_name = f"{name}-{label}-{number}-{p}"
                record = journal.read(record_name) if journal is not None else None
                step = Step(pairs=len(rows), tokens=path.tokens, resumed=record is not None)
                if record is None:
                    with _model_errors():
                        column_T = path.column(p)
                    record = _record(column_T, part, keep)
                    if journal is not None:
                        journal.write(record_name, record)
                else:
                    resumed += len(rows)
                logp_UP[rows, p] = record["sums"]
                for place, values in zip(keep, _split(record, part, keep), strict=True):
                    tokens[int(rows[place]), p] = values
                advance(step)
        work += Work(batch_tokens, path.fed_tokens, path.head_rows, resumed)
    return Columns(logp_UP, tokens, work)


def _record(column_T: NDArray[np.float64], pairs: Pairs, keep: Sequence[int]) -> Record:
    spans = [column_T[pairs.edge_R[r] : pairs.edge_R[r + 1]] for r in keep]
    return {
        "sums": np.add.reduceat(column_T, pairs.edge_R[:-1]),
        "tokens": np.concatenate([*spans, np.empty(0)]),
    }


def _split(record: Record, pairs: Pairs, keep: Sequence[int]) -> list[NDArray[np.float64]]:
    lengths = [int(pairs.edge_R[r + 1] - pairs.edge_R[r]) for r in keep]
    return np.split(record["tokens"], np.cumsum(lengths)[:-1]) if keep else []
