"""The fast path: prompts and responses as two trees, walked in passes without padding or a cache.

Each prompt is read once, behind what it shares with the one before; the tree of responses follows
it. Needs a model whose attention can be replaced and whose layers see the past through attention
alone; with any other it is refused or silently wrong, so the caller must probe.
"""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ragen_diag.scoring.attention import Walk, tree_attention
from ragen_diag.scoring.chunks import Chunk, Segment, cut, make_chunks
from ragen_diag.scoring.head import head_of
from ragen_diag.scoring.pairs import Pairs
from ragen_diag.scoring.tree import MIN_SHARED, Tree, make_tree


class Ragged:
    """Columns of pairs, one at a time.

    `chunk` is the largest number of tokens in one pass, `min_shared` the fewest tokens that equal
    beginnings must have to be read once (None: nothing is shared).

    Raises:
        PathUnusable: the model's attention or head can't be replaced.
    """

    name = "ragged"

    def __init__(
        self,
        model: Any,
        pairs: Pairs,
        *,
        chunk: int,
        temperature: float = 1.0,
        min_shared: int | None = MIN_SHARED,
    ) -> None:
        self._model, self._chunk = model, chunk
        self._head = head_of(model, temperature)
        self._prompts = make_tree(pairs.prompt_ids_P, min_shared=min_shared)
        rows = make_tree(pairs.rows_R, min_shared=min_shared)
        cuts = zip(rows.slots_R, pairs.first_R, strict=True)
        self._slot_T = np.concatenate([slots[first:] for slots, first in cuts])
        scored_S = np.zeros(len(rows.ids_S), dtype=bool)
        scored_S[self._slot_T] = True
        self._passes = [_Pass(c, rows, model.device) for c in make_chunks(rows, scored_S, chunk)]
        self._slots = len(rows.ids_S)
        self._nodes_P = [_nodes(self._prompts, slots) for slots in self._prompts.slots_R]
        self.order = sorted(range(len(self._nodes_P)), key=lambda p: self._nodes_P[p])
        longest = max(map(len, pairs.prompt_ids_P)) + int(pairs.stop_R.max())
        self._walk = Walk(longest, min(chunk, longest))
        self._read: list[int] = []
        self._last_1H = torch.empty(0)
        self.fed_tokens = self.head_rows = 0

    @property
    def tokens(self) -> int:
        """Tokens of the rows that one column feeds."""
        return sum(len(one.ids_1C[0]) for one in self._passes)

    def session(self) -> AbstractContextManager[None]:
        """What columns must be asked for within."""
        return tree_attention(self._model)

    def column(self, p: int) -> NDArray[np.float64]:
        """Log-probability of every scored token under prompt p, rows after one another, in nats.

        Fastest in the order of `order`; any other gives the same numbers.
        """
        with torch.inference_mode():
            self._read_prompt(p)
            length = len(self._prompts.slots_R[p])
            told_S = np.zeros(self._slots)
            for one in self._passes:
                hidden_CH = self._last_1H
                if one.ids_1C.shape[1]:
                    hidden_CH = self._forward(one.ids_1C, one.depth_1C + length, one.behind(length))
                    hidden_CH = torch.cat([self._last_1H, hidden_CH])
                logp_T = self._head.log_probs(hidden_CH[one.teller_H], one.by_T, one.target_T)
                told_S[one.slot_T] = logp_T.cpu().double().numpy()
                self.head_rows += len(one.teller_H)
        column_T: NDArray[np.float64] = told_S[self._slot_T]
        return column_T

    def _read_prompt(self, p: int) -> None:
        """Go to the end of a prompt, from where its way parts from that of the last one."""
        nodes = self._nodes_P[p]
        shared = 0
        while self._read[shared : shared + 1] == nodes[shared : shared + 1] != []:
            shared += 1
        # The last node is read again if the one before went on from it: its hidden row is gone.
        shared = min(shared, len(nodes) - 1) if self._read != nodes else len(nodes)
        self._read = nodes
        for node in nodes[shared:]:
            start, depth = int(self._prompts.start_N[node]), int(self._prompts.depth_N[node])
            for first, stop in cut(int(self._prompts.stop_N[node]) - start, self._chunk):
                ids = self._prompts.ids_S[start + first : start + stop]
                ids_1C = torch.from_numpy(ids)[None].to(self._model.device)
                place_1C = torch.arange(depth + first, depth + stop, device=ids_1C.device)[None]
                segment = Segment(0, stop - first, depth + first)
                self._last_1H = self._forward(ids_1C, place_1C, [segment])[-1:].clone()

    def _forward(
        self, ids_1C: torch.Tensor, place_1C: torch.Tensor, segments: list[Segment]
    ) -> torch.Tensor:
        """(C, H) hidden states after the last layer."""
        self._walk.segments = segments
        self.fed_tokens += ids_1C.shape[1]
        out = self._model.base_model(
            input_ids=ids_1C, position_ids=place_1C, use_cache=False, walk=self._walk
        )
        hidden_CH: torch.Tensor = out.last_hidden_state[0]
        return hidden_CH


class _Pass:
    """A chunk as tensors; what the prompt's last token tells is told by row 0."""

    def __init__(self, chunk: Chunk, tree: Tree, device: Any) -> None:
        self.ids_1C = torch.from_numpy(chunk.ids_C)[None].to(device)
        self.depth_1C = torch.from_numpy(chunk.depth_C)[None].to(device)
        self.teller_H = torch.from_numpy(chunk.teller_H + 1).to(device)
        self.by_T = torch.from_numpy(chunk.by_T).to(device)
        self.target_T = torch.from_numpy(tree.ids_S[chunk.slot_T]).to(device)
        self.slot_T = chunk.slot_T
        self._segments = chunk.segments

    def behind(self, length: int) -> list[Segment]:
        """The segments behind a prompt of this length."""
        return [Segment(s.start, s.stop, s.depth + length) for s in self._segments]


def _nodes(tree: Tree, slots: NDArray[np.int64]) -> list[int]:
    """The nodes on the way of a sequence."""
    nodes: list[int] = np.unique(np.searchsorted(tree.start_N, slots, side="right") - 1).tolist()
    return nodes
