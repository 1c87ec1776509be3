"""Which rows go through the model together: a function of their lengths and a budget, nothing else.

Never of free memory or of time, so that two runs on two machines form the same batches. Pure
numpy; knows no model.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

CPU_LOGITS = 2**25
"""Logits in one forward pass on a CPU: 128 MiB in float32."""
ACCELERATOR_LOGITS = 2**29
"""The same on an accelerator: 2 GiB in float32."""
CPU_ACTIVATIONS = 2**26
"""Bytes that the tokens of one pass may take between two layers, on a CPU."""
ACCELERATOR_ACTIVATIONS = 2**32
FEWEST_CHUNK, CPU_CHUNK, ACCELERATOR_CHUNK = 128, 512, 16384
"""Bounds of the tokens of an unpadded pass: products of fewer rows are slower, and more rows than
the last two bring nothing."""
CPU_TOKENS, ACCELERATOR_TOKENS = 1024, 16384
"""Above these a matrix product gets no faster, and activations fall out of the CPU's cache."""
MIN_TOKENS = 64
CACHE_TOKENS_PER_BUDGET = 16
"""Prompt positions that may be copied for the rows of a batch, per token of the budget: short
rows behind a long prompt are otherwise few tokens with a large cache."""


def default_budget(vocab_size: int, *, accelerator: bool) -> int:
    """Padded tokens in one forward pass, for a model with `vocab_size` logits per token.

    >>> default_budget(49_152, accelerator=False), default_budget(151_936, accelerator=True)
    (682, 3533)
    """
    logits, most = (
        (ACCELERATOR_LOGITS, ACCELERATOR_TOKENS) if accelerator else (CPU_LOGITS, CPU_TOKENS)
    )
    return min(most, max(MIN_TOKENS, logits // vocab_size))


def default_chunk(config: Any, bytes_per_number: int, *, accelerator: bool) -> int:
    """Tokens in one pass without padding, for a model of this shape.

    Counts what a layer holds per token: residual, norms, queries, keys, values, the inner states.
    """
    hidden = int(getattr(config, "hidden_size", None) or 1024)
    inner = getattr(config, "intermediate_size", None)
    inner = inner if isinstance(inner, int) else 4 * hidden
    per_token = bytes_per_number * (8 * hidden + 3 * inner + 8 * hidden)
    room, most = (
        (ACCELERATOR_ACTIVATIONS, ACCELERATOR_CHUNK)
        if accelerator
        else (CPU_ACTIVATIONS, CPU_CHUNK)
    )
    return min(most, max(FEWEST_CHUNK, room // per_token))


def padded_batches(
    length_R: NDArray[np.int64], budget: int, *, max_rows: int
) -> list[NDArray[np.int64]]:
    """Rows of similar length together; rows x longest <= budget, or one row that is longer alone.

    Longest first, equal lengths in input order; every row is in exactly one batch.

    >>> [batch.tolist() for batch in padded_batches(np.array([2, 9, 3, 3]), 6, max_rows=8)]
    [[1], [2, 3], [0]]
    """
    order_R = np.argsort(-length_R, kind="stable")
    batches = []
    start = 0
    while start < len(order_R):
        longest = max(1, int(length_R[order_R[start]]))
        rows = min(max_rows, max(1, budget // longest))
        batches.append(order_R[start : start + rows])
        start += rows
    return batches


def equal_batches(length_R: NDArray[np.int64], budget: int) -> list[NDArray[np.int64]]:
    """Only rows of exactly one length together, so that none is padded; within the budget as above.

    >>> [batch.tolist() for batch in equal_batches(np.array([2, 9, 3, 3]), 6)]
    [[1], [2, 3], [0]]
    """
    return [
        rows_N[batch_B]
        for length in np.unique(length_R)[::-1]
        for rows_N in [np.flatnonzero(length_R == length)]
        for batch_B in padded_batches(length_R[rows_N], budget, max_rows=len(rows_N))
    ]
