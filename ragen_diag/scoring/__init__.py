"""Groups and a checkpoint in, `Scores` out: every response under every distinct prompt of its turn.

RAGEN-2 (arXiv 2604.06268), Sec. 2.3. Knows nothing of files, rewards or regimes. Importing this
package imports no torch; `score` does.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragen_diag import __version__
from ragen_diag.errors import ScoringError
from ragen_diag.scoring.journal import Journal, Resume
from ragen_diag.scoring.pairs import Block, Crossing, blocks
from ragen_diag.scoring.scores import Noise, Scores, Work, read_scores, worst, write_scores

if TYPE_CHECKING:
    from ragen_diag.scoring.choice import Chosen
    from ragen_diag.scoring.columns import How, Step

__all__ = ["Noise", "Progress", "Resume", "Scores", "Work", "read_scores", "score", "write_scores"]


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


@dataclass(frozen=True)
class Progress:
    """Pairs of distinct rows, and tokens of rows fed for them: scored, in all, and how many of the
    scored ones an earlier run that was stopped had done already."""

    pairs: int
    pairs_in_all: int
    tokens: int
    resumed_pairs: int


def score(
    checkpoint: Policy,
    groups: Crossing,
    *,
    response_ids: Sequence[str],
    batch_tokens: int | None = None,
    temperature: float = 1.0,
    on_progress: Callable[[Progress], None] | None = None,
    resume: Resume | None = None,
) -> Scores:
    """log p(Z_r given prompt p and the row's opening) for rows r and the columns p of their turn.

    In nats; -inf for columns of other turns. `response_ids` names the rows of `groups` in their
    order. `batch_tokens` bounds the tokens of one forward pass (None: a fixed function of the
    model's shape); it changes scores by rounding only. `temperature` divides the logits before
    the softmax. Equal rows of a turn are scored once. With `resume` finished columns are kept in
    its folder and are not scored again; the folder is the caller's to remove.

    Raises:
        ScoringError: nothing to score, ids that the model doesn't have, scores that are not
            finite even one by one, no way of scoring that agrees with the model's own forward, or
            no memory left.
        UsageError: `resume` names a folder that can't be written.
    """
    from ragen_diag.scoring.columns import How, enough_memory
    from ragen_diag.scoring.threads import fitting_threads

    _check(checkpoint, groups, response_ids)
    how = How(
        model=checkpoint.model,
        dtype=checkpoint.dtype,
        vocab_size=checkpoint.vocab_size,
        accelerator=not checkpoint.device.startswith("cpu"),
        batch_tokens=batch_tokens,
        temperature=temperature,
    )
    apart = blocks(groups)
    journal = None if resume is None else Journal(resume, _inputs(apart, groups, how))
    advance = _counter(on_progress, sum(block.pairs.size for block in apart))
    logp_RP = np.full((len(groups.reasoning_ids_R), len(groups.prompt_ids_P)), -np.inf)
    own_logp: dict[int, NDArray[np.float64]] = {}
    noises, work = [], Work(0, 0, 0)
    with fitting_threads(checkpoint.model), enough_memory():
        for number, block in enumerate(apart):
            chosen = _score_block(block, groups, how, response_ids, journal, str(number), advance)
            columns = chosen.columns
            logp_RP[np.ix_(block.row_N, block.column_P)] = columns.logp_UP[block.place_N]
            for r, pair in zip(block.row_N.tolist(), _own_pairs(block, groups), strict=True):
                own_logp[r] = columns.tokens[pair]
            noises.append(chosen.noise)
            work += columns.work
    return Scores(
        logp_RP=logp_RP,
        n_tokens_R=np.array([len(z) for z in groups.reasoning_ids_R], dtype=np.int64),
        own_R=np.asarray(groups.own_R, dtype=np.int64),
        response_ids=list(response_ids),
        own_logp_R=[own_logp[r] for r in range(len(response_ids))],
        noise=worst(noises),
        work=work,
    )


def _score_block(
    block: Block,
    groups: Crossing,
    how: "How",
    response_ids: Sequence[str],
    journal: Journal | None,
    label: str,
    advance: "Callable[[Step], None]",
) -> "Chosen":
    """Which way of scoring is right is found out for each block anew, as it depends on lengths."""
    from ragen_diag.scoring.choice import score_block
    from ragen_diag.scoring.probe import make_probe

    names_U = [response_ids[r] for r in block.first_U]
    probe = make_probe(
        how.model,
        block.pairs,
        temperature=how.temperature,
        dtype=how.dtype,
        vocab_size=how.vocab_size,
    )
    for (r, _), logp_T in probe.logp.items():
        _require_finite(logp_T[None], [names_U[r]])
    chosen = score_block(
        block.pairs,
        probe,
        how,
        set(_own_pairs(block, groups)),
        journal=journal,
        label=label,
        advance=advance,
    )
    _require_finite(chosen.columns.logp_UP, names_U)
    return chosen


def _own_pairs(block: Block, groups: Crossing) -> list[tuple[int, int]]:
    """Each row of the block as its distinct row and the column it was sampled from, both within
    the block."""
    column = {int(p): place for place, p in enumerate(block.column_P)}
    own_N = [column[int(p)] for p in groups.own_R[block.row_N]]
    return list(zip(block.place_N.tolist(), own_N, strict=True))


def _inputs(apart: Sequence[Block], groups: Crossing, how: "How") -> bytes:
    """What the records of the scores depend on, besides the model's weights."""
    import torch
    import transformers

    pairs = [(b.pairs.prompt_ids_P, b.pairs.opening_ids_R, b.pairs.reasoning_ids_R) for b in apart]
    # Of a row's own prompts alone single tokens are kept.
    own = [sorted(set(_own_pairs(block, groups))) for block in apart]
    settings = [how.dtype, str(how.model.device), how.batch_tokens, how.temperature]
    versions = [__version__, torch.__version__, transformers.__version__, torch.get_num_threads()]
    return json.dumps([pairs, own, settings, versions]).encode()


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


def _counter(
    on_progress: Callable[[Progress], None] | None, total: int
) -> "Callable[[Step], None]":
    done = Progress(0, total, 0, 0)

    def advance(step: "Step") -> None:
        nonlocal done
        done = Progress(
            done.pairs + step.pairs,
            total,
            done.tokens + step.tokens,
            done.resumed_pairs + (step.pairs if step.resumed else 0),
        )
        if on_progress is not None:
            on_progress(done)

    return advance
