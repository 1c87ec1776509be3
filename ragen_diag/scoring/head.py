"""Hidden states -> log-probabilities of given tokens, without a matrix of rows x vocabulary.

The logits of a tile of rows and of vocabulary at a time, in one buffer that is used again.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ragen_diag.scoring.unusable import PathUnusable

TILE = {"cpu": (512, 1024), "accelerator": (4096, 16384)}
"""Rows and words: on a CPU 2 MiB, which stay in its cache."""

_HALF = (torch.bfloat16, torch.float16)

MULTIPLIERS = ("logit_scale", "lm_head_multiplier")
DIVISORS = ("logits_scaling",)
SOFTCAPS = ("final_logit_softcapping",)
"""Names under which configurations say what becomes of the logits (Cohere and Falcon-H1, Granite,
Gemma). A model with one of another name differs in the probe, and is not scored this way."""


@dataclass(frozen=True)
class Head:
    """A model's last layer: logits = softcap(scale x (weight h + bias)) / temperature."""

    weight_VH: torch.Tensor
    bias_V: torch.Tensor | None
    scale: float
    softcap: float | None
    temperature: float

    def log_probs(
        self, hidden_NH: torch.Tensor, by_T: torch.Tensor, target_T: torch.Tensor
    ) -> torch.Tensor:
        """(T,) log-probability of each target by row `by_T` of the hidden states; float32 or more.

        Target minus logsumexp, as float32 log-softmax on a CPU is biased by about 1e-5 per token.
        """
        hidden_NH = hidden_NH.to(self.weight_VH.device)
        target_TH = _wide(self.weight_VH[target_T])
        logit_T = (_wide(hidden_NH[by_T]) * target_TH).sum(1)
        bias_T = 0.0 if self.bias_V is None else self.bias_V[target_T]
        exact_T = self._shaped(logit_T + bias_T)
        sum_T = self._logsumexp(hidden_NH)[by_T]
        if _rounds(hidden_NH):
            # The sum holds the target's own logit as the tile has it. Where a token is near
            # certain this is all of the sum, and would be off by as much as the logit is rounded.
            tile_T = self._shaped(_wide(logit_T.to(hidden_NH.dtype)) + bias_T)
            sum_T = sum_T + torch.log1p((exact_T - sum_T).exp() - (tile_T - sum_T).exp())
        result_T: torch.Tensor = exact_T - sum_T
        return result_T

    def _logsumexp(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        rows, words = TILE["cpu" if hidden_NH.is_cpu else "accelerator"]
        vocabulary = len(self.weight_VH)
        buffer = hidden_NH.new_empty(min(rows, len(hidden_NH)) * min(words, vocabulary))
        sums_N = []
        for h_NH in torch.split(hidden_NH, rows):
            tiles = []
            for v in range(0, vocabulary, words):
                w_WH = self.weight_VH[v : v + words]
                logits_NW = _product(h_NH, w_WH, buffer)
                if self.bias_V is not None:
                    logits_NW += self.bias_V[v : v + words]
                tiles.append(self._shaped(logits_NW).logsumexp(1))
            sums_N.append(torch.stack(tiles, 1).logsumexp(1))
        return torch.cat(sums_N)

    def _shaped(self, logits: torch.Tensor) -> torch.Tensor:
        """Scaled, capped and tempered, in place."""
        if self.scale != 1.0:
            logits.mul_(self.scale)
        if self.softcap is not None:
            logits.div_(self.softcap).tanh_().mul_(self.softcap)
        if self.temperature != 1.0:
            logits.div_(self.temperature)
        return logits


def _product(h_NH: torch.Tensor, w_WH: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """(rows, words) in float32 or more."""
    if h_NH.is_cuda and h_NH.dtype in _HALF:
        return torch.mm(h_NH, w_WH.T, torch.float32)
    tile_NW = buffer[: len(h_NH) * len(w_WH)].view(len(h_NH), len(w_WH))
    return _wide(torch.mm(h_NH, w_WH.T, out=tile_NW))


def _rounds(hidden_NH: torch.Tensor) -> bool:
    """A product of half precision is rounded to it again, except on CUDA."""
    return hidden_NH.dtype in _HALF and not hidden_NH.is_cuda


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()


def head_of(model: Any, temperature: float) -> Head:
    """The model's last layer.

    Raises:
        PathUnusable: it is no matrix of words.
    """
    layer = model.get_output_embeddings()
    weight = getattr(layer, "weight", None)
    if not isinstance(layer, torch.nn.Linear) or weight is None:
        raise PathUnusable(f"the head of {type(model).__name__} is no matrix of words")
    scale = 1.0
    for name in MULTIPLIERS:
        scale *= getattr(model.config, name, None) or 1.0
    for name in DIVISORS:
        scale /= getattr(model.config, name, None) or 1.0
    softcap = next((cap for n in SOFTCAPS if (cap := getattr(model.config, n, None))), None)
    return Head(weight, layer.bias, scale, softcap, temperature)
