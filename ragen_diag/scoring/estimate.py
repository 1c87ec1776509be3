"""What scoring will cost, before it begins: pairs, tokens, and memory besides the weights.

Of the fast path, which most models take. Counts and shapes alone; imports no torch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen_diag.scoring.batches import default_chunk
from ragen_diag.scoring.pairs import Crossing, Pairs, blocks, piece_tokens, row_pieces
from ragen_diag.scoring.tree import make_tree

TILE_BYTES = 2**23
"""Of the head: a tile of logits and the hidden rows and words that it is made of."""


@dataclass(frozen=True)
class Estimate:
    """`pairs` of distinct rows and prompts, `tokens` that go through the model in passes of
    `batch_tokens`, and `memory` in bytes above the weights."""

    pairs: int
    tokens: int
    batch_tokens: int
    memory: int


def estimate(
    config: Any, groups: Crossing, *, number_bytes: int, accelerator: bool, batch_tokens: int | None
) -> Estimate:
    """The cost of scoring `groups` with a model of this configuration, whose numbers have
    `number_bytes` bytes."""
    chunk = batch_tokens or default_chunk(config, number_bytes, accelerator=accelerator)
    apart = [block.pairs for block in blocks(groups)]
    longest = max(max(map(len, p.prompt_ids_P)) + int(p.stop_R.max()) for p in apart)
    hidden = int(getattr(config, "hidden_size", None) or 1024)
    heads = getattr(config, "num_attention_heads", None) or 1
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    size = getattr(config, "head_dim", None) or hidden // heads
    layers = getattr(config, "num_hidden_layers", None) or 1
    kept = 2 * layers * longest * kv_heads * size * number_bytes
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    return Estimate(
        pairs=sum(p.size for p in apart),
        tokens=sum(_tokens(p) for p in apart),
        batch_tokens=chunk,
        memory=kept + chunk * number_bytes * (16 * hidden + 3 * inner) + TILE_BYTES,
    )


def _tokens(pairs: Pairs) -> int:
    prompts = len(make_tree(pairs.prompt_ids_P).ids_S)
    total = 0
    for rows in row_pieces(pairs, piece_tokens(pairs)):
        tree = make_tree([pairs.rows_R[r] for r in rows])
        total += prompts + len(pairs.prompt_ids_P) * int(np.sum(~tree.is_last_S))
    return total
