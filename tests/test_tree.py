"""What sequences begin with in common stands once, and nothing is lost by it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_cases import VOCAB, Policy, Rows, per_token, tiny

from ragen_diag.scoring import score
from ragen_diag.scoring.chunks import make_chunks
from ragen_diag.scoring.estimate import estimate
from ragen_diag.scoring.naive import score_naive
from ragen_diag.scoring.pairs import row_pieces
from ragen_diag.scoring.ragged import Ragged
from ragen_diag.scoring.tree import make_tree

# Few different tokens, so that sequences often begin alike.
sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=14), min_size=1, max_size=9)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_a_tree_by_hand() -> None:
    tree = make_tree([[1, 2, 3, 4], [1, 2, 3, 5, 6], [9], [1, 2, 3, 4], [1, 2, 3]], min_shared=3)
    assert tree.ids_S.tolist() == [1, 2, 3, 4, 5, 6, 9]
    assert tree.before_S.tolist() == [-1, 0, 1, 2, 2, 4, -1]
    assert [slots.tolist() for slots in tree.slots_R] == [
        *([0, 1, 2, 3], [0, 1, 2, 4, 5], [6], [0, 1, 2, 3], [0, 1, 2])
    ]
    assert tree.is_last_S.tolist() == [False, False, False, True, False, True, True]
    assert list(zip(tree.start_N, tree.stop_N, tree.depth_N, strict=True)) == [
        *((0, 3, 0), (3, 4, 3), (4, 6, 3), (6, 7, 0))
    ]


@given(sequences, st.sampled_from([None, 1, 2, 8]))
def test_every_sequence_is_in_its_tree(some: list[list[int]], min_shared: int | None) -> None:
    tree = make_tree(some, min_shared=min_shared)
    for sequence, slots in zip(some, tree.slots_R, strict=True):
        assert tree.ids_S[slots].tolist() == sequence
        assert tree.before_S[slots].tolist() == [-1, *slots[:-1]]
    followed = {int(before) for before in tree.before_S if before >= 0}
    assert set(np.flatnonzero(~tree.is_last_S)) == followed
    if min_shared is None:
        assert len(tree.ids_S) == sum(map(len, some))
    if min_shared == 1:
        beginnings = {tuple(s[:n]) for s in some for n in range(1, len(s) + 1)}
        assert len(tree.ids_S) == len(beginnings)


@given(sequences, st.sampled_from([None, 1, 3]), st.integers(1, 9))
def test_passes_tell_every_scored_token_once(
    some: list[list[int]], min_shared: int | None, most: int
) -> None:
    tree = make_tree(some, min_shared=min_shared)
    scored_S = np.arange(len(tree.ids_S)) % 3 != 1
    chunks = make_chunks(tree, scored_S, most)
    fed = [slot for chunk in chunks for slot in chunk.ids_C]
    assert fed == tree.ids_S[~tree.is_last_S].tolist()
    assert all(len(chunk.ids_C) <= most for chunk in chunks)
    told = np.concatenate([chunk.slot_T for chunk in chunks])
    assert sorted(told.tolist()) == np.flatnonzero(scored_S).tolist()
    fed_S = np.flatnonzero(~tree.is_last_S)
    first = 0
    for chunk in chunks:
        # By its teller, each token is told by the one before it.
        for by, slot in zip(chunk.teller_H[chunk.by_T], chunk.slot_T, strict=True):
            assert (fed_S[first + by] if by >= 0 else -1) == tree.before_S[slot]
        covered = [place for s in chunk.segments for place in range(s.start, s.stop)]
        assert covered == list(range(len(chunk.ids_C)))
        first += len(chunk.ids_C)


@settings(deadline=None, max_examples=40)
@given(
    prompts=sequences,
    rows=sequences,
    openings=st.integers(0, 5),
    chunk=st.integers(1, 12),
    min_shared=st.sampled_from([None, 1, 2, 8]),
)
def test_any_tree_in_any_passes_gives_the_same_scores(
    prompts: list[list[int]],
    rows: list[list[int]],
    openings: int,
    chunk: int,
    min_shared: int | None,
) -> None:
    cut = [min(openings, len(row) - 1) for row in rows]
    cross = Rows(
        prompts,
        [row[:n] for row, n in zip(rows, cut, strict=True)],
        [row[n:] for row, n in zip(rows, cut, strict=True)],
    )
    model = tiny("llama-gqa-tied")
    pairs = cross.pairs()
    path = Ragged(model, pairs, chunk=chunk, min_shared=min_shared)
    found_RP = np.full((len(rows), len(prompts)), np.nan)
    with path.session():
        # Against the cheapest order, so that prompts are left and come back.
        for p in reversed(path.order):
            found_RP[:, p] = np.add.reduceat(path.column(p), pairs.edge_R[:-1])
    assert per_token(found_RP, score_naive(model, *cross.lists()), cross) < 2e-5


def collapsed() -> Rows:
    """16 responses of 160 tokens that have the first 96 in common, under 2 prompts that have 200 of
    240 in common."""
    rng = np.random.default_rng(0)

    def ids(n: int) -> list[int]:
        return rng.integers(0, VOCAB, n).tolist()

    system, opening = ids(200), ids(96)
    return Rows(
        [system + ids(40) for _ in range(2)], [[]] * 16, [opening + ids(64) for _ in range(16)]
    )


def test_what_is_shared_is_read_once() -> None:
    model = tiny("llama-gqa-tied", max_position_embeddings=512)
    cross = collapsed()
    shared = score(Policy(model), cross, response_ids=cross.names)
    assert shared.work is not None
    # System prompt once, then each prompt's own tokens, the common opening and 63 of the last 64
    # tokens of each response: the last one of a response tells nothing.
    assert shared.work.fed_tokens == 200 + 2 * (40 + 96 + 16 * 63)
    # The prompt's last token, 96 of the opening (the last of them tells 16), 63 of every response.
    assert shared.work.head_rows == 2 * (1 + 96 + 16 * 63)
    unshared = Ragged(model, cross.pairs(), chunk=512, min_shared=None)
    with unshared.session():
        plain_RP = np.stack(
            [np.add.reduceat(unshared.column(p), cross.pairs().edge_R[:-1]) for p in range(2)], 1
        )
    told = estimate(model.config, cross, number_bytes=4, accelerator=False, batch_tokens=None)
    assert (told.tokens, told.pairs) == (shared.work.fed_tokens, 2 * 16)
    # Keys and values of 2 layers, 2 heads of 8 numbers, 400 positions; 512 tokens of 656 numbers.
    assert told.memory == 4 * (2 * 2 * 2 * 8 * 400 + 512 * (16 * 32 + 3 * 48)) + 2**23
    assert unshared.fed_tokens == 2 * (240 + 16 * 159)
    assert per_token(shared.logp_RP, plain_RP, cross) < 1e-6


@given(sequences, st.integers(1, 40))
def test_pieces_hold_every_row_once(some: list[list[int]], tokens: int) -> None:
    pieces = row_pieces(Rows([[0]], [[]] * len(some), some).pairs(), tokens)
    assert sorted(np.concatenate(pieces).tolist()) == list(range(len(some)))
    most = max(map(len, some))
    assert all(sum(len(some[r]) for r in piece) <= 2 * tokens + most for piece in pieces)


def test_rows_in_pieces_are_the_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cross = tiny("qwen3", max_position_embeddings=512), collapsed()
    whole = score(Policy(model), cross, response_ids=cross.names)
    monkeypatch.setattr("ragen_diag.scoring.pairs.PIECE_TOKENS", 600)
    monkeypatch.setattr("ragen_diag.scoring.pairs.PIECE_PROMPTS", 1)
    pieces = score(Policy(model), cross, response_ids=cross.names)
    assert per_token(pieces.logp_RP, whole.logp_RP, cross) < 1e-6
    assert whole.work is not None and pieces.work is not None
    # 2560 tokens in 4 pieces: the prompts and the common opening are read 4 times.
    assert pieces.work.fed_tokens == whole.work.fed_tokens + 3 * (200 + 2 * (40 + 96))
