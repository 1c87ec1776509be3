"""The rows of one turn under its columns, scored by the way that is right for them.

Which way that is depends on lengths, and so is found out for each turn anew.
"""

from collections.abc import Callable, Sequence

from ragen_diag.scoring.checks import Policy, require_finite
from ragen_diag.scoring.choice import Chosen, score_block
from ragen_diag.scoring.columns import How
from ragen_diag.scoring.journal import Journal
from ragen_diag.scoring.pairs import Block
from ragen_diag.scoring.probe import Pair, make_probe
from ragen_diag.scoring.progress import Step


def how_to_score(checkpoint: Policy, batch_tokens: int | None, temperature: float) -> How:
    """What the ways of scoring must know of a checkpoint, and what the user chose."""
    return How(
        model=checkpoint.model,
        dtype=checkpoint.dtype,
        vocab_size=checkpoint.vocab_size,
        accelerator=not checkpoint.device.startswith("cpu"),
        batch_tokens=batch_tokens,
        temperature=temperature,
    )


def score_turn(
    block: Block,
    how: How,
    response_ids: Sequence[str],
    wanted: set[Pair],
    *,
    journal: Journal | None,
    label: str,
    advance: Callable[[Step], None],
) -> Chosen:
    """All pairs of a block, and the single tokens of the `wanted` ones at least.

    `response_ids` names the rows of the whole matrix; `label` tells the block's records in the
    journal from others'.

    Raises:
        ScoringError: no way of scoring agrees with the model's own forward, or scores are not
            finite even one by one.
    """
    names_U = [response_ids[r] for r in block.first_U]
    probe = make_probe(
        how.model,
        block.pairs,
        temperature=how.temperature,
        dtype=how.dtype,
        vocab_size=how.vocab_size,
    )
    for (r, _), logp_T in probe.logp.items():
        require_finite(logp_T[None], [names_U[r]])
    chosen = score_block(
        block.pairs, probe, how, wanted, journal=journal, label=label, advance=advance
    )
    require_finite(chosen.columns.logp_UP, names_U)
    return chosen
