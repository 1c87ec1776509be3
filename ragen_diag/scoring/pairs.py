"""What is to be scored: rows under prompts, in blocks that have nothing to do with each other.

Token ids alone; knows no model and imports no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

PIECE_PROMPTS, PIECE_TOKENS = 32, 2**14
"""Tokens of a piece of rows: that many times the longest prompt, which every piece reads again, so
that this costs 3 % at most; and no fewer than the second number."""


class Crossing(Protocol):
    """What is needed of groups."""

    @property
    def prompt_ids_P(self) -> list[list[int]]: ...
    @property
    def turn_P(self) -> NDArray[np.int64]: ...
    @property
    def opening_ids_R(self) -> list[list[int]]: ...
    @property
    def reasoning_ids_R(self) -> list[list[int]]: ...
    @property
    def own_R(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Pairs:
    """What to score: every row under every prompt."""

    prompt_ids_P: Sequence[Sequence[int]]
    opening_ids_R: Sequence[Sequence[int]]
    reasoning_ids_R: Sequence[Sequence[int]]

    def part(self, row_N: Sequence[int], column_N: Sequence[int]) -> "Pairs":
        """The pairs of some rows and columns."""
        return Pairs(
            [self.prompt_ids_P[p] for p in column_N],
            [self.opening_ids_R[r] for r in row_N],
            [self.reasoning_ids_R[r] for r in row_N],
        )

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.prompt_ids_P) * len(self.reasoning_ids_R)

    @cached_property
    def rows_R(self) -> list[list[int]]:
        """What stands behind the prompt: opening and reasoning."""
        both = zip(self.opening_ids_R, self.reasoning_ids_R, strict=True)
        return [[*opening, *reasoning] for opening, reasoning in both]

    @cached_property
    def first_R(self) -> NDArray[np.int64]:
        """Place of the first scored token in each row; the row's last one is scored too."""
        return np.array([len(opening) for opening in self.opening_ids_R], dtype=np.int64)

    @cached_property
    def stop_R(self) -> NDArray[np.int64]:
        """Length of each row."""
        return np.array([len(row) for row in self.rows_R], dtype=np.int64)

    @cached_property
    def edge_R(self) -> NDArray[np.int64]:
        """(R + 1,) the scored tokens of row r are `edge_R[r]` to `edge_R[r + 1]` of a column."""
        return np.concatenate([[0], np.cumsum(self.stop_R - self.first_R)])


@dataclass(frozen=True)
class Block:
    """The rows and columns of one turn: `pairs` are its U distinct rows under its columns.

    `row_N` and `column_P` are its places in the whole matrix. `place_N` is the distinct row of each
    of its rows, and `own_N` the column that it was sampled from, both within the block. `first_U`
    is the first row (of the whole matrix) of each distinct one.
    """

    row_N: NDArray[np.int64]
    column_P: NDArray[np.int64]
    place_N: NDArray[np.int64]
    own_N: NDArray[np.int64]
    first_U: NDArray[np.int64]
    pairs: Pairs

    @property
    def own_pairs(self) -> list[tuple[int, int]]:
        """Each row as its distinct row and own column."""
        return list(zip(self.place_N.tolist(), self.own_N.tolist(), strict=True))


def piece_tokens(pairs: Pairs) -> int:
    """Tokens of the rows that are scored together under all prompts."""
    return max(PIECE_TOKENS, PIECE_PROMPTS * max(map(len, pairs.prompt_ids_P)))


def row_pieces(pairs: Pairs, tokens: int) -> list[NDArray[np.int64]]:
    """Rows in pieces of about `tokens` tokens, neighbours by their ids, so that what rows begin
    with in common is mostly in one piece. Every row is in exactly one."""
    order_R = np.array(sorted(range(len(pairs.rows_R)), key=pairs.rows_R.__getitem__))
    ends = np.cumsum(pairs.stop_R[order_R])
    count = max(1, int(ends[-1]) // tokens)
    cuts = np.searchsorted(ends, [ends[-1] * k / count for k in range(1, count)])
    return [np.sort(piece) for piece in np.split(order_R, cuts) if len(piece)]


def blocks(groups: Crossing) -> list[Block]:
    """One block per turn that has rows, in the turns' order; every row is in exactly one, and so
    is every column of these turns."""
    turn_R = groups.turn_P[groups.own_R]
    return [
        _block(groups, np.flatnonzero(turn_R == turn), np.flatnonzero(groups.turn_P == turn))
        for turn in np.unique(turn_R)
    ]


def _block(groups: Crossing, row_N: NDArray[np.int64], column_P: NDArray[np.int64]) -> Block:
    # In a collapsed step distinct rows are few.
    place: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    rows = [(tuple(groups.opening_ids_R[r]), tuple(groups.reasoning_ids_R[r])) for r in row_N]
    place_N = np.array([place.setdefault(row, len(place)) for row in rows], dtype=np.int64)
    prompts = [groups.prompt_ids_P[p] for p in column_P]
    return Block(
        row_N=row_N,
        column_P=column_P,
        place_N=place_N,
        # Columns of a block ascend.
        own_N=np.searchsorted(column_P, groups.own_R[row_N]),
        first_U=row_N[np.unique(place_N, return_index=True)[1]],
        pairs=Pairs(prompts, [opening for opening, _ in place], [z for _, z in place]),
    )
