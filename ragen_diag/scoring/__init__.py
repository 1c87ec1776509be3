"""Groups and a checkpoint in, `Scores` out: every response under every distinct prompt of its turn.

RAGEN-2 (arXiv 2604.06268), Sec. 2.3. Knows nothing of files, rewards or regimes. Importing this
package imports no torch; `score` does. The single tokens of a few rows are in `scoring.tokens`.
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragen_diag import __version__
from ragen_diag.scoring.checks import Policy, check
from ragen_diag.scoring.journal import Journal, Resume
from ragen_diag.scoring.pairs import Block, Crossing, blocks
from ragen_diag.scoring.progress import Progress, count_steps
from ragen_diag.scoring.scores import Noise, Scores, Work, read_scores, worst, write_scores

if TYPE_CHECKING:
    from ragen_diag.scoring.columns import How

__all__ = ["Noise", "Progress", "Resume", "Scores", "Work", "read_scores", "score", "write_scores"]


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
    from ragen_diag.scoring.columns import enough_memory
    from ragen_diag.scoring.threads import fitting_threads
    from ragen_diag.scoring.turns import how_to_score, score_turn

    check(checkpoint, groups, response_ids)
    how = how_to_score(checkpoint, batch_tokens, temperature)
    apart = blocks(groups)
    journal = None if resume is None else Journal(resume, _inputs(apart, how))
    advance = count_steps(on_progress, sum(block.pairs.size for block in apart))
    logp_RP = np.full((len(groups.reasoning_ids_R), len(groups.prompt_ids_P)), -np.inf)
    own_logp: dict[int, NDArray[np.float64]] = {}
    noises, work = [], Work(0, 0, 0)
    with fitting_threads(checkpoint.model), enough_memory():
        for number, block in enumerate(apart):
            chosen = score_turn(
                block,
                how,
                response_ids,
                set(block.own_pairs),
                journal=journal,
                label=str(number),
                advance=advance,
            )
            columns = chosen.columns
            logp_RP[np.ix_(block.row_N, block.column_P)] = columns.logp_UP[block.place_N]
            for r, pair in zip(block.row_N.tolist(), block.own_pairs, strict=True):
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


def _inputs(apart: Sequence[Block], how: "How") -> bytes:
    """What the records of the scores depend on, besides the model's weights."""
    import torch
    import transformers

    pairs = [(b.pairs.prompt_ids_P, b.pairs.opening_ids_R, b.pairs.reasoning_ids_R) for b in apart]
    # Of a row's own prompts alone single tokens are kept.
    own = [sorted(set(block.own_pairs)) for block in apart]
    settings = [how.dtype, str(how.model.device), how.batch_tokens, how.temperature]
    versions = [__version__, torch.__version__, transformers.__version__, torch.get_num_threads()]
    return json.dumps([pairs, own, settings, versions]).encode()
