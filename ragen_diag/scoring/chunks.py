"""A tree -> the passes of a model through it: which tokens go in together, and what each tells.

The same passes behind every prompt, so that rounding which depends on the shape of a pass cancels
between the columns of a row. Numbers alone; knows no model and imports no torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ragen_diag.scoring.tree import Tree


@dataclass(frozen=True)
class Segment:
    """Successive tokens of one node: places `start` to `stop` of the pass, of which the first is
    token number `depth` of its sequences."""

    start: int
    stop: int
    depth: int


@dataclass(frozen=True)
class Chunk:
    """One pass: C tokens go in, and T tokens are told by H of them.

    `teller_H` are places in the pass, -1 for the prompt's last token; token t is that of slot
    `slot_T[t]` and is told by number `by_T[t]` of `teller_H`.
    """

    ids_C: NDArray[np.int64]
    depth_C: NDArray[np.int64]
    segments: list[Segment]
    teller_H: NDArray[np.int64]
    by_T: NDArray[np.int64]
    slot_T: NDArray[np.int64]


def make_chunks(tree: Tree, scored_S: NDArray[np.bool_], most: int) -> list[Chunk]:
    """Passes of at most `most` tokens and of nearly equal size that tell all scored slots.

    Tokens that nothing follows do not go in. The first chunk also holds what the prompt's last
    token tells, and is there even when no token goes in.
    """
    fed_S = np.flatnonzero(~tree.is_last_S)
    place_S = np.full(len(tree.ids_S), -1)
    place_S[fed_S] = np.arange(len(fed_S))
    told_T = np.flatnonzero(scored_S)
    before_T = tree.before_S[told_T]
    teller_T = np.where(before_T < 0, -1, place_S[before_T])
    depth_S = _depths(tree)
    chunks = []
    for first, stop in cut(len(fed_S), most):
        here_T = (teller_T >= first) & (teller_T < stop)
        if first == 0:
            here_T |= teller_T < 0
        teller_H, by_T = np.unique(teller_T[here_T], return_inverse=True)
        slots = fed_S[first:stop]
        chunks.append(
            Chunk(
                ids_C=tree.ids_S[slots],
                depth_C=depth_S[slots],
                segments=list(_segments(tree, slots, depth_S)),
                teller_H=np.where(teller_H < 0, -1, teller_H - first),
                by_T=by_T.reshape(-1),
                slot_T=told_T[here_T],
            )
        )
    return chunks


def cut(length: int, most: int) -> list[tuple[int, int]]:
    """Pieces of nearly equal size of at most `most`.

    >>> cut(10, 4)
    [(0, 3), (3, 6), (6, 10)]
    """
    count = max(1, -(-length // most))
    edges = [length * k // count for k in range(count + 1)]
    return list(pairwise(edges))


def _depths(tree: Tree) -> NDArray[np.int64]:
    """Number of each slot's token in its sequences."""
    sizes_N = tree.stop_N - tree.start_N
    return np.arange(len(tree.ids_S)) + np.repeat(tree.depth_N - tree.start_N, sizes_N)


def _segments(
    tree: Tree, slots: NDArray[np.int64], depth_S: NDArray[np.int64]
) -> Iterator[Segment]:
    node = np.searchsorted(tree.start_N, slots, side="right")
    edges = [0, *(np.flatnonzero(np.diff(node)) + 1).tolist(), len(slots)]
    for start, stop in pairwise(edges):
        if stop > start:
            yield Segment(start, stop, int(depth_S[slots[start]]))
