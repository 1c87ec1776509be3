"""The sturdy path: every pair as one whole sequence, in batches of exactly equal length.

Nothing is padded, copied or kept between pairs, so a recurrence, a length-dependent rotary base
or an alibi bias sees what it sees when a pair runs alone. Several times slower than `prefix`.
"""

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ragen_diag.scoring.batches import equal_batches
from ragen_diag.scoring.naive import forget_lengths
from ragen_diag.scoring.pairs import Pairs
from ragen_diag.scoring.prefix import fill, padded, target_logp


class Full:
    """Columns of pairs, one at a time.

    `batch_tokens` counts prompt and response; a pair that is longer runs alone.
    """

    name = "full"

    def __init__(
        self, model: Any, pairs: Pairs, *, batch_tokens: int, temperature: float = 1.0
    ) -> None:
        self._model, self._pairs = model, pairs
        self._budget, self._temperature = batch_tokens, temperature
        self._takes_keep = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.order: Sequence[int] = range(len(pairs.prompt_ids_P))
        self.tokens = int(pairs.stop_R.sum())
        self.fed_tokens = self.head_rows = 0

    def session(self) -> AbstractContextManager[None]:
        """What columns must be asked for within."""
        return torch.inference_mode()

    def column(self, p: int) -> NDArray[np.float64]:
        """Log-probability of every scored token under prompt p, rows after one another, in nats."""
        pairs = self._pairs
        prompt_ids = pairs.prompt_ids_P[p]
        column_T = np.full(pairs.edge_R[-1], np.nan)
        for rows_B in equal_batches(pairs.stop_R + len(prompt_ids), self._budget):
            ids_BS = padded([pairs.rows_R[r] for r in rows_B]).to(self._model.device)
            fed_BT = padded([[*prompt_ids, *pairs.rows_R[r][:-1]] for r in rows_B])
            # As few logits as the scored tokens of these rows need.
            first = int(pairs.first_R[rows_B].min())
            keep = ids_BS.shape[1] - first
            forget_lengths(self._model)
            kwargs = {"logits_to_keep": keep} if self._takes_keep else {}
            fed_BT = fed_BT.to(self._model.device)
            logits_BTV = self._model(input_ids=fed_BT, use_cache=False, **kwargs).logits[:, -keep:]
            logp_BS = target_logp(logits_BTV, ids_BS[:, first:], self._temperature)
            fill(column_T, pairs, rows_B, logp_BS, first)
            self.fed_tokens += fed_BT.numel()
            self.head_rows += logits_BTV.shape[0] * logits_BTV.shape[1]
        return column_T
