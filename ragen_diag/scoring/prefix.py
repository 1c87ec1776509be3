"""The middle path: each prompt runs once, and its cache is copied for every batch of responses.

Uses the model's own cache object through the public interface, so it is right for whatever
attention the model has, as long as the cache can be copied. Where it can't (recurrent layers,
rotary bases that depend on the length) the scores are silently wrong: the caller must probe.
"""

import copy
import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ragen_diag.scoring.batches import CACHE_TOKENS_PER_BUDGET, padded_batches
from ragen_diag.scoring.pairs import Pairs
from ragen_diag.scoring.unusable import PathUnusable


class Prefix:
    """Columns of pairs, one at a time.

    A batch is the same rows under every prompt, so that rounding which depends on the batch's
    shape cancels between the columns of a row. No more than `batch_tokens` padded tokens, hence
    `batch_tokens` x vocabulary logits, are alive at a time, whatever R and P.

    Raises:
        PathUnusable: the model takes or gives no cache that can be copied.
    """

    name = "prefix"

    def __init__(
        self, model: Any, pairs: Pairs, *, batch_tokens: int, temperature: float = 1.0
    ) -> None:
        self._pairs = pairs
        longest = max(map(len, pairs.prompt_ids_P))
        max_rows = max(1, CACHE_TOKENS_PER_BUDGET * batch_tokens // longest)
        self._plan = padded_batches(pairs.stop_R, batch_tokens, max_rows=max_rows)
        self._reader = Reader(model, batch_tokens, temperature)
        self.order: Sequence[int] = range(len(pairs.prompt_ids_P))
        self.tokens = int(pairs.stop_R.sum())

    def session(self) -> AbstractContextManager[None]:
        """What columns must be asked for within."""
        return torch.inference_mode()

    def column(self, p: int) -> NDArray[np.float64]:
        """Log-probability of every scored token under prompt p, rows after one another, in nats."""
        column_T = np.full(self._pairs.edge_R[-1], np.nan)
        prompt = self._reader.read_prompt(self._pairs.prompt_ids_P[p])
        for rows_B in self._plan:
            logp_BS = self._reader.read_rows(
                prompt, padded([self._pairs.rows_R[r] for r in rows_B])
            )
            fill(column_T, self._pairs, rows_B, logp_BS)
        return column_T

    @property
    def fed_tokens(self) -> int:
        """Tokens that went through the model, padding included."""
        return self._reader.fed_tokens

    @property
    def head_rows(self) -> int:
        """Hidden states that became logits."""
        return self._reader.head_rows


@dataclass(frozen=True)
class Prompt:
    """A prompt that was read: the cache after it, its length, the logits of its last token."""

    cache: Any
    length: int
    last_V: torch.Tensor


class Reader:
    """Feeds ids to one model, at most `batch_tokens` at a time, behind a cache."""

    def __init__(self, model: Any, batch_tokens: int, temperature: float) -> None:
        declared = inspect.signature(model.forward).parameters
        # Renamed in transformers 5; passing the old name warns, passing an undeclared one is
        # swallowed by **kwargs without effect.
        names = [name for name in ("cache", "past_key_values") if name in declared]
        if not names:
            raise PathUnusable(f"{type(model).__name__} takes no cache of keys and values")
        self.model, self.batch_tokens, self.temperature = model, batch_tokens, temperature
        self.cache_name = names[0]
        self.takes_positions = "position_ids" in declared
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in declared else {}
        self.fed_tokens = self.head_rows = 0

    def read_prompt(self, prompt_ids: Sequence[int]) -> Prompt:
        """Run a prompt of at least one token."""
        ids_BT = torch.tensor([list(prompt_ids)])
        cache: Any = None
        logits_BTV = torch.empty(0)
        for start in range(0, len(prompt_ids), self.batch_tokens):
            piece_BT = ids_BT[:, start : start + self.batch_tokens]
            logits_BTV, cache = self._forward(piece_BT, start, cache, **self.last_only)
        if cache is None or not hasattr(cache, "batch_repeat_interleave"):
            raise PathUnusable(f"{type(self.model).__name__} gives no cache that can be copied")
        return Prompt(cache, len(prompt_ids), logits_BTV[0, -1])

    def read_rows(self, prompt: Prompt, ids_BS: torch.Tensor) -> torch.Tensor:
        """log p of every id of every row behind the prompt, (B, S); padding gets one too."""
        rows, tokens = ids_BS.shape
        ids_BS = ids_BS.to(self.model.device)
        # The first id of every row is told by the prompt's last token, each later one by the
        # id before it, so the last id is never fed.
        last_B1V = prompt.last_V.expand(rows, 1, -1)
        logp = [target_logp(last_B1V, ids_BS[:, :1], self.temperature)]
        if tokens > 1:
            cache = copy.deepcopy(prompt.cache)
            cache.batch_repeat_interleave(rows)
        width = max(1, self.batch_tokens // rows)
        for start in range(0, tokens - 1, width):
            stop = min(start + width, tokens - 1)
            logits_BTV, cache = self._forward(ids_BS[:, start:stop], prompt.length + start, cache)
            logp.append(target_logp(logits_BTV, ids_BS[:, start + 1 : stop + 1], self.temperature))
        return torch.cat(logp, dim=1)

    def _forward(
        self, ids_BT: torch.Tensor, position: int, cache: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, Any]:
        ids_BT = ids_BT.to(self.model.device)
        if self.takes_positions:
            kwargs["position_ids"] = torch.arange(
                position, position + ids_BT.shape[1], device=ids_BT.device
            ).unsqueeze(0)
        kwargs[self.cache_name] = cache
        output = self.model(input_ids=ids_BT, use_cache=True, **kwargs)
        self.fed_tokens += ids_BT.numel()
        self.head_rows += output.logits.shape[0] * output.logits.shape[1]
        return output.logits, output.get(self.cache_name)


def padded(rows_B: Sequence[Sequence[int]]) -> torch.Tensor:
    """Ids side by side, filled on the right with 0; lengths tell what is fill, never ids."""
    width = max(map(len, rows_B))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows_B])


def target_logp(
    logits_BTV: torch.Tensor, target_BT: torch.Tensor, temperature: float
) -> torch.Tensor:
    """log-softmax at the targets, (B, T) float32.

    Target minus logsumexp, as float32 log-softmax on a CPU is biased by about 1e-5 per token.
    """
    logits_BTV = logits_BTV.float()
    if temperature != 1.0:
        logits_BTV = logits_BTV / temperature
    target_BT1 = logits_BTV.gather(2, target_BT.unsqueeze(2))
    return target_BT1.squeeze(2) - logits_BTV.logsumexp(2)


def fill(
    column_T: NDArray[np.float64],
    pairs: Pairs,
    rows_B: NDArray[np.int64],
    logp_BS: torch.Tensor,
    first: int = 0,
) -> None:
    """Put the scored tokens of some rows, whose places from `first` on are given, in a column."""
    values_BS = logp_BS.cpu().double().numpy()
    for r, values_S in zip(rows_B, values_BS, strict=True):
        scored = values_S[pairs.first_R[r] - first : pairs.stop_R[r] - first]
        column_T[pairs.edge_R[r] : pairs.edge_R[r + 1]] = scored
