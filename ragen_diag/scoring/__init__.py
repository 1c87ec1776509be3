"""Groups and a checkpoint in, `Scores` out: every response under every distinct prompt of its turn.

RAGEN-2 (arXiv 2604.06268), Sec. 2.3. Knows nothing of files, rewards or regimes. Importing this
package imports no torch; `score` does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragen_diag.errors import ScoringError
from ragen_diag.scoring.batches import default_budget
from ragen_diag.scoring.pairs import Block, Crossing, blocks
from ragen_diag.scoring.scores import Noise, Scores, read_scores, worst, write_scores

__all__ = ["Noise", "Scores", "read_scores", "score", "write_scores"]


class Policy(Protocol):
    """What is needed of a checkpoint."""

    @property
    def model(self) -> Any: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...


def score(
    checkpoint: Policy,
    groups: Crossing,
    *,
    response_ids: Sequence[str],
    batch_tokens: int | None = None,
    temperature: float = 1.0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Scores:
    """log p(Z_r given prompt p and the row's opening) for rows r and the columns p of their turn.

    In nats; -inf for columns of other turns. `response_ids` names the rows of `groups` in their
    order. `batch_tokens` bounds the padded tokens of one forward pass (None: a fixed function of
    the vocabulary); it changes scores by rounding only. `temperature` divides the logits before
    the softmax. Equal rows of a turn are scored once. `on_progress(done, total)` counts pairs of
    distinct rows.

    Raises:
        ScoringError: nothing to score, ids that the model doesn't have, scores that are not
            finite even one by one, or no way of scoring that agrees with the reference.
    """
    from ragen_diag.scoring.threads import fitting_threads

    _check(checkpoint, groups, response_ids)
    if batch_tokens is None:
        batch_tokens = default_budget(
            checkpoint.vocab_size, accelerator=not checkpoint.device.startswith("cpu")
        )
    apart = blocks(groups)
    how: dict[str, Any] = {"temperature": temperature, "batch_tokens": batch_tokens}
    how["advance"] = _counter(on_progress, sum(block.pairs.size for block in apart))
    logp_RP = np.full((len(groups.reasoning_ids_R), len(groups.prompt_ids_P)), -np.inf)
    noises = []
    with fitting_threads(checkpoint.model):
        for block in apart:
            logp_NP, noise = _score_block(checkpoint, block, response_ids, how)
            logp_RP[np.ix_(block.row_N, block.column_P)] = logp_NP
            noises.append(noise)
    return Scores(
        logp_RP=logp_RP,
        n_tokens_R=np.array([len(z) for z in groups.reasoning_ids_R], dtype=np.int64),
        own_R=np.asarray(groups.own_R, dtype=np.int64),
        response_ids=list(response_ids),
        noise=worst(noises),
    )


def _score_block(
    checkpoint: Policy, block: Block, response_ids: Sequence[str], how: Mapping[str, Any]
) -> tuple[NDArray[np.float64], Noise]:
    """(rows, columns) of the block; which way of scoring is right is found out for each anew, as
    that depends on lengths."""
    from ragen_diag.scoring.paths import make_probe, score_pairs

    model, pairs = checkpoint.model, block.pairs
    names_U = [response_ids[r] for r in block.first_U]
    probe = make_probe(model, pairs, temperature=how["temperature"], dtype=checkpoint.dtype)
    _require_finite(probe.logp_NN, [names_U[u] for u in probe.row_N])
    logp_UP, noise = score_pairs(model, pairs, probe, **how)
    _require_finite(logp_UP, names_U)
    return logp_UP[block.place_N], noise


def _check(checkpoint: Policy, groups: Crossing, response_ids: Sequence[str]) -> None:
    if not groups.prompt_ids_P or not groups.reasoning_ids_R:
        raise ScoringError("nothing to score: no response has a reasoning span under a prompt")
    for p, ids in enumerate(groups.prompt_ids_P):
        if not ids:
            raise ScoringError(
                f"prompt {p} has no tokens; its first response token can't be scored"
            )
        _check_ids(ids, f"prompt {p}", checkpoint.vocab_size)
    rows = zip(response_ids, groups.opening_ids_R, groups.reasoning_ids_R, strict=True)
    for name, opening, reasoning in rows:
        if not reasoning:
            raise ScoringError(
                f"response {name} has no reasoning tokens; exclude it before scoring"
            )
        _check_ids([*opening, *reasoning], f"response {name}", checkpoint.vocab_size)


def _check_ids(ids: Sequence[int], owner: str, vocab_size: int) -> None:
    if min(ids) < 0:
        raise ScoringError(
            f"{owner} holds token id {min(ids)}, which marks padding or a mask and is no token; "
            "write the dump without such ids"
        )
    if max(ids) >= vocab_size:
        stranger = next(i for i in ids if i >= vocab_size)
        raise ScoringError(
            f"{owner} holds token id {stranger}, but the model has ids 0 to {vocab_size - 1}; "
            "are dump, tokenizer and checkpoint of one run?"
        )


def _require_finite(logp_NP: NDArray[np.float64], names_N: Sequence[str]) -> None:
    bad = [
        name for name, row_P in zip(names_N, logp_NP, strict=True) if not np.isfinite(row_P).all()
    ]
    if bad:
        listed = ", ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
        raise ScoringError(
            f"the model gives log-probabilities that are not finite for {listed}, even one by one; "
            "check the checkpoint's weights, or try --dtype float32"
        )


def _counter(on_progress: Callable[[int, int], None] | None, total: int) -> Callable[[int], None]:
    done = 0

    def advance(pairs: int) -> None:
        nonlocal done
        done += pairs
        if on_progress is not None:
            on_progress(done, total)

    return advance
