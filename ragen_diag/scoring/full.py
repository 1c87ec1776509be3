"""The sturdy path: every pair as one whole sequence, in batches of exactly equal length.

Nothing is padded, copied or kept between pairs, so a recurrence, a length-dependent rotary base
or an alibi bias sees what it sees when a pair runs alone. Several times slower than `prefix`.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ragen_diag.scoring.batches import equal_batches
from ragen_diag.scoring.naive import forget_lengths
from ragen_diag.scoring.prefix import masked_sum, padded, target_logp


def score_full(
    model: Any,
    prompt_ids_P: Sequence[Sequence[int]],
    opening_ids_R: Sequence[Sequence[int]],
    reasoning_ids_R: Sequence[Sequence[int]],
    *,
    batch_tokens: int,
    temperature: float = 1.0,
    advance: Callable[[int], None] = lambda pairs: None,
) -> NDArray[np.float64]:
    """Every row under every prompt, (R, P) nats; equal to `score_naive` up to rounding.

    The budget counts prompt and response; a pair that is longer runs alone.
    """
    rows_R = [[*o, *z] for o, z in zip(opening_ids_R, reasoning_ids_R, strict=True)]
    opening_R = np.array([len(o) for o in opening_ids_R], dtype=np.int64)
    length_R = np.array([len(row) for row in rows_R], dtype=np.int64)
    takes_keep = "logits_to_keep" in inspect.signature(model.forward).parameters
    logp_RP = np.full((len(rows_R), len(prompt_ids_P)), np.nan)
    with torch.inference_mode():
        for p, prompt_ids in enumerate(prompt_ids_P):
            for rows_B in equal_batches(length_R + len(prompt_ids), batch_tokens):
                ids_BS = padded([rows_R[r] for r in rows_B]).to(model.device)
                fed_BT = padded([[*prompt_ids, *rows_R[r][:-1]] for r in rows_B]).to(model.device)
                keep = ids_BS.shape[1]
                forget_lengths(model)
                kwargs = {"logits_to_keep": keep} if takes_keep else {}
                logits_BTV = model(input_ids=fed_BT, use_cache=False, **kwargs).logits[:, -keep:]
                logp_BS = target_logp(logits_BTV, ids_BS, temperature)
                logp_RP[rows_B, p] = masked_sum(logp_BS, opening_R[rows_B], length_R[rows_B])
                advance(len(rows_B))
    return logp_RP
