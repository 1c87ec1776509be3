"""What can't be scored is refused in words, before and after. Imports no torch."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragen_diag.errors import ScoringError
from ragen_diag.scoring.pairs import Crossing


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


def check(checkpoint: Policy, groups: Crossing, response_ids: Sequence[str]) -> None:
    """Whether every row can be scored under every column.

    Raises:
        ScoringError: there are none, or one has no tokens or ids that the model doesn't have.
    """
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


def require_finite(logp_NP: NDArray[np.float64], names_N: Sequence[str]) -> None:
    """Refuse scores that are not finite.

    Raises:
        ScoringError: names the rows that have one.
    """
    bad = [
        name for name, row_P in zip(names_N, logp_NP, strict=True) if not np.isfinite(row_P).all()
    ]
    if bad:
        listed = ", ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
        raise ScoringError(
            f"the model gives log-probabilities that are not finite for {listed}, even one by one; "
            "check the checkpoint's weights, or try --dtype float32"
        )
