"""Sequences of token ids -> a tree in which what they begin with in common stands once.

A collapsed policy writes the same opening again and again, and the prompts of a run share their
system prompt: what is shared is read once. Numbers alone; knows no model and imports no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_SHARED = 8
"""Fewest tokens that make a branch of their own: below, a further piece of attention costs more
than the tokens that it saves."""

_Row = NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """N nodes over S slots, one token each, depth first: every node stands before its children.

    Node n has the slots `start_N[n]` to `stop_N[n]`, of which the first is token number
    `depth_N[n]` of its sequences. Sequence r is the tokens of `slots_R[r]`.
    """

    ids_S: NDArray[np.int64]
    before_S: NDArray[np.int64]
    """Slot of the token before each; -1 at the beginning of a sequence."""
    is_last_S: NDArray[np.bool_]
    """No token follows: it is told by others and tells none."""
    start_N: NDArray[np.int64]
    stop_N: NDArray[np.int64]
    depth_N: NDArray[np.int64]
    slots_R: list[NDArray[np.int64]]


def make_tree(sequences_R: Sequence[Sequence[int]], *, min_shared: int | None = MIN_SHARED) -> Tree:
    """A tree of sequences of at least one token, in which equal ones share all they have.

    `min_shared` is the fewest tokens that a branch is made for; None shares nothing, not even
    between equal sequences.

    >>> tree = make_tree([[5, 6, 7], [5, 6], [8]], min_shared=2)
    >>> tree.ids_S.tolist(), [slots.tolist() for slots in tree.slots_R]
    ([5, 6, 7, 8], [[0, 1, 2], [0, 1], [3]])
    """
    rows_R = [np.asarray(sequence, dtype=np.int64) for sequence in sequences_R]
    order = sorted(range(len(rows_R)), key=lambda r: tuple(sequences_R[r]))
    builder = _Builder(rows_R)
    if min_shared is None:
        for r in order:
            builder.add([r], 0, len(rows_R[r]), parent=None)
    else:
        _branch(builder, order, min_shared)
    return builder.finish()


def _branch(builder: "_Builder", order: list[int], min_shared: int) -> None:
    """Split sorted sequences where they part. A stack, as a path may part at every token."""
    # Sequences, how many tokens all of them have in nodes already, and the node of the last one.
    todo: list[tuple[list[int], int, int | None]] = [(order, 0, None)]
    while todo:
        some, depth, parent = todo.pop()
        first, last = builder.rows_R[some[0]], builder.rows_R[some[-1]]
        # Sorted, so that what the outer two have in common all have.
        common = _common(first, last)
        if common == len(last) or common - depth >= min_shared:
            parent = builder.add(some, depth, common, parent)
            depth = common
        parts: dict[int, list[int]] = {}
        for r in some:
            row = builder.rows_R[r]
            if len(row) > common:
                parts.setdefault(int(row[common]), []).append(r)
            elif depth < common:
                # It ends where the others go on, after too few tokens for a branch.
                parts.setdefault(-1, []).append(r)
        todo.extend((part, depth, parent) for part in reversed(parts.values()))


def _common(a: _Row, b: _Row) -> int:
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


class _Builder:
    """Collects nodes in depth-first order."""

    def __init__(self, rows_R: list[_Row]) -> None:
        self.rows_R = rows_R
        self._pieces: list[_Row] = []
        self._nodes: list[tuple[int, int, int]] = []
        self._before: list[int] = []
        self._slots: list[list[NDArray[np.int64]]] = [[] for _ in rows_R]
        self._size = 0

    def add(self, some: Sequence[int], depth: int, end: int, parent: int | None) -> int | None:
        """A node of the tokens `depth` to `end` of these sequences, if there are any."""
        if end == depth:
            return parent
        start, self._size = self._size, self._size + end - depth
        self._pieces.append(self.rows_R[some[0]][depth:end])
        self._before.append(-1 if parent is None else self._nodes[parent][1] - 1)
        self._nodes.append((start, self._size, depth))
        slots = np.arange(start, self._size)
        for r in some:
            self._slots[r].append(slots)
        return len(self._nodes) - 1

    def finish(self) -> Tree:
        start_N, stop_N, depth_N = np.array(self._nodes, dtype=np.int64).reshape(-1, 3).T
        before_S = np.arange(self._size) - 1
        before_S[start_N] = self._before
        is_last_S = np.ones(self._size, dtype=bool)
        is_last_S[before_S[before_S >= 0]] = False
        return Tree(
            ids_S=np.concatenate(self._pieces),
            before_S=before_S,
            is_last_S=is_last_S,
            start_N=start_N,
            stop_N=stop_N,
            depth_N=depth_N,
            slots_R=[np.concatenate(pieces) for pieces in self._slots],
        )
