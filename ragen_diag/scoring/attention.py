"""Attention over a tree of tokens, in the place of a model's own: through the public interface of
transformers, without a cache object.

Every layer keeps keys and values by position. As a tree is walked depth first, what stands below
a position is always the path to it, and a branch overwrites the one before.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from ragen_diag.scoring.chunks import Segment
from ragen_diag.scoring.unusable import PathUnusable

NAME = "ragen_diag_tree"

HARMLESS = frozenset(
    {
        *("position_ids", "cache_position", "position_embeddings", "is_causal", "dropout"),
        *("use_cache", "output_attentions", "output_hidden_states", "return_dict"),
        *("output_router_logits", "num_items_in_batch"),
    }
)
"""What models hand to an attention function without changing what it computes."""


class Walk:
    """Where in the tree a pass is, and what every layer knows of the way there.

    `longest` is the largest number of positions on a path, `widest` of a segment.
    """

    def __init__(self, longest: int, widest: int) -> None:
        self.longest, self.widest = longest, widest
        self.segments: Sequence[Segment] = ()
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._bands: dict[tuple[int | None, torch.dtype], torch.Tensor] = {}

    def store(
        self, layer: Any, key_1HCD: torch.Tensor, value_1HCD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer by position, (1, heads, longest, size)."""
        if id(layer) not in self._kept:
            self._kept[id(layer)] = tuple(  # type: ignore[assignment]
                x.new_zeros((1, x.shape[1], self.longest, x.shape[3]))
                for x in (key_1HCD, value_1HCD)
            )
        return self._kept[id(layer)]

    def mask(self, segment: Segment, first: int, window: int | None, like: torch.Tensor) -> Any:
        """What `band` gives, for a kernel that takes queries such as `like`.

        On an accelerator a plain causal mask is only named, so that a fused kernel can be taken.
        """
        if window is None and not like.is_cpu:
            size = segment.stop - segment.start
            return causal_lower_right(size, segment.depth + size)
        return self.band(segment, first, window, like.dtype, like.device)

    def band(
        self,
        segment: Segment,
        first: int,
        window: int | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> torch.Tensor:
        """(tokens, positions from `first` on): 0 where a token of the segment looks, else -inf."""
        name = (window, dtype)
        if name not in self._bands:
            query = torch.arange(self.widest, device=device)[:, None] + self.longest
            key = torch.arange(self.longest + self.widest, device=device)
            seen = key <= query
            if window is not None:
                seen &= key > query - window
            band = torch.zeros(seen.shape, dtype=dtype, device=device)
            self._bands[name] = band.masked_fill_(~seen, -math.inf)
        # Row i of the band stands at position `longest` + i: a shift makes it serve every depth.
        size, shift = segment.stop - segment.start, self.longest - segment.depth
        return self._bands[name][:size, shift + first : shift + segment.depth + size]


@contextmanager
def tree_attention(model: Any) -> Iterator[None]:
    """Let the model's layers attend along a `Walk`, which its forward is handed as `walk`.

    Raises:
        PathUnusable: its attention can't be replaced.
    """
    if not getattr(model, "_supports_attention_backend", False):
        raise PathUnusable(f"the attention of {type(model).__name__} can't be replaced")
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(NAME)
        if model.config._attn_implementation != NAME:
            raise PathUnusable(f"the attention of {type(model).__name__} can't be replaced")
        yield
    finally:
        model.set_attn_implementation(before)


def attend(
    layer: Any,
    query_1HCD: torch.Tensor,
    key_1KCD: torch.Tensor,
    value_1KCD: torch.Tensor,
    attention_mask: Any = None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    walk: Walk | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of every segment over its path; what transformers calls an attention function.

    Raises:
        PathUnusable: the layer asks for something that is not computed here.
    """
    unknown = [name for name, x in others.items() if x is not None and name not in HARMLESS]
    if walk is None or unknown or attention_mask is not None or query_1HCD.shape[0] != 1:
        asked = f" ({', '.join(unknown)})" if unknown else ""
        raise PathUnusable(f"{type(layer).__name__} asks for another attention{asked}")
    if not getattr(layer, "is_causal", True):
        raise PathUnusable(f"{type(layer).__name__} looks ahead")
    keys, values = walk.store(layer, key_1KCD, value_1KCD)
    out = query_1HCD.new_empty((1, query_1HCD.shape[2], query_1HCD.shape[1], values.shape[3]))
    scaling = query_1HCD.shape[3] ** -0.5 if scaling is None else scaling
    for segment in walk.segments:
        here = slice(segment.start, segment.stop)
        end = segment.depth + segment.stop - segment.start
        keys[:, :, segment.depth : end] = key_1KCD[:, :, here]
        values[:, :, segment.depth : end] = value_1KCD[:, :, here]
        first = 0 if sliding_window is None else max(0, segment.depth + 1 - sliding_window)
        near = slice(first, end)
        query = query_1HCD[:, :, here]
        half = query.dtype in (torch.bfloat16, torch.float16)
        plain = softcap is None and not (half and query.is_cpu)
        if plain:
            mask = walk.mask(segment, first, sliding_window, query)
            got = F.scaled_dot_product_attention(
                query, keys[:, :, near], values[:, :, near], mask, scale=scaling, enable_gqa=True
            )
        else:
            wide = torch.float32 if half else query.dtype
            mask = walk.band(segment, first, sliding_window, wide, query.device)
            got = _by_products(query, keys[:, :, near], values[:, :, near], mask, scaling, softcap)
        out[:, here] = got.transpose(1, 2)
    return out, None


def _by_products(
    query_1HTD: torch.Tensor,
    key_1KSD: torch.Tensor,
    value_1KSD: torch.Tensor,
    mask_TS: torch.Tensor,
    scaling: float,
    softcap: float | None,
) -> torch.Tensor:
    """Attention as two matrix products with a softmax in the mask's dtype between.

    What can cap the logits, and in half precision on a CPU the faster form.
    """
    _, heads, tokens, size = query_1HTD.shape
    kv_heads = key_1KSD.shape[1]
    query_KND = query_1HTD.reshape(kv_heads, heads // kv_heads * tokens, size)
    logits_KNS = (query_KND @ key_1KSD[0].transpose(1, 2)).to(mask_TS.dtype).mul_(scaling)
    if softcap is not None:
        logits_KNS = logits_KNS.div_(softcap).tanh_().mul_(softcap)
    logits_KNS.view(kv_heads, -1, *mask_TS.shape).add_(mask_TS)
    weights_KNS = logits_KNS.softmax(-1).to(value_1KSD.dtype)
    return (weights_KNS @ value_1KSD[0]).view(1, heads, tokens, value_1KSD.shape[3])


def _no_mask(*_: Any, **__: Any) -> None:
    """A mask over a whole pass is never wanted: it would take other branches for the past."""


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _no_mask)
