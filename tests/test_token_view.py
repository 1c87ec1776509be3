"""What each token tells of its prompt: sums, a naive reference, and the text in pieces."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scoring_cases import VOCAB, Policy, Rows, tiny

from ragen_diag.metrics.pointwise import pointwise_mi
from ragen_diag.pipeline.run.texts import pieces
from ragen_diag.scoring import score
from ragen_diag.scoring.tokens import score_tokens


def some_rows(seed: int = 0) -> Rows:
    generator = np.random.default_rng(seed)

    def ids(n: int) -> list[int]:
        return generator.integers(0, VOCAB, n).tolist()

    system = ids(6)
    prompts = [system + ids(n) for n in (3, 4, 5, 3, 4, 6)]
    return Rows(prompts, [ids(n % 2) for n in range(12)], [ids(n % 5 + 1) for n in range(12)])


def naive_tokens(model, prompt, opening, reasoning) -> list[float]:
    """log p of every reasoning token by one plain pass, no cache and no batch."""
    ids = torch.tensor([[*prompt, *opening, *reasoning]])
    with torch.inference_mode():
        logp = model(ids).logits[0].double().log_softmax(-1)
    first = len(prompt) + len(opening)
    return [float(logp[first + t - 1, token]) for t, token in enumerate(reasoning)]


@pytest.mark.parametrize("name", ["qwen3", "mistral-window", "gpt2", "gemma2-softcap"])
def test_tokens_are_those_of_a_plain_pass_and_add_up_to_the_matrix(name):
    model, rows = tiny(name), some_rows()
    asked = [0, 3, 7, 11]
    found = score_tokens(Policy(model), rows, asked, response_ids=rows.names)
    whole = score(Policy(model), rows, response_ids=rows.names).logp_RP
    for row, logp_PT in zip(asked, found, strict=True):
        assert logp_PT.shape == (len(rows.prompt_ids_P), len(rows.reasoning_ids_R[row]))
        assert logp_PT.sum(axis=1) == pytest.approx(whole[row], abs=1e-3)
        for p, prompt in enumerate(rows.prompt_ids_P):
            expected = naive_tokens(
                model, prompt, rows.opening_ids_R[row], rows.reasoning_ids_R[row]
            )
            assert logp_PT[p] == pytest.approx(expected, abs=2e-4)
        # Matched minus marginal of the whole response, from the matrix alone.
        own = int(rows.own_R[row])
        marginal = np.logaddexp.reduce(whole[row]) - np.log(len(whole[row]))
        assert pointwise_mi(logp_PT, own).sum() == pytest.approx(
            whole[row, own] - marginal, abs=1e-3
        )


@given(
    st.integers(1, 6),
    st.integers(1, 7),
    st.integers(0, 2**31),
)
def test_every_prefix_tells_at_most_the_log_of_the_candidates(prompts, tokens, seed):
    logp_PT = np.random.default_rng(seed).normal(-3, 2, (prompts, tokens)).clip(max=0)
    told = np.cumsum(pointwise_mi(logp_PT, 0))
    assert (told <= np.log(prompts) + 1e-9).all()
    marginal = np.logaddexp.reduce(logp_PT.sum(axis=1)) - np.log(prompts)
    assert told[-1] == pytest.approx(logp_PT[0].sum() - marginal)
    doubled = np.concatenate([logp_PT, np.full((1, tokens), -np.inf)])
    assert np.cumsum(pointwise_mi(doubled, 0)) == pytest.approx(told)


class Words:
    """Decodes words or UTF-8 bytes, with blanks between them as some tokenizers do."""

    def __init__(self, vocabulary: list[bytes], blank: str) -> None:
        self._vocabulary, self._blank = vocabulary, blank

    def decode(self, ids: list[int]) -> str:
        parts = [self._vocabulary[one] for one in ids]
        return self._blank.encode().join(parts).decode("utf-8", errors="replace")


@pytest.mark.parametrize(
    ("vocabulary", "blank", "expected"),
    [
        ([b"go", b"left", b"now"], " ", ("go", " left", " now")),
        ([b"go", b" left", b"!"], "", ("go", " left", "!")),
        # A character of three bytes over two tokens belongs to the one that completes it.
        ([b"a", "左".encode()[:2], "左".encode()[2:]], "", ("a", "", "左")),
    ],
)
def test_pieces_are_the_text(vocabulary, blank, expected):
    tokenizer = Words(vocabulary, blank)
    ids = list(range(len(vocabulary)))
    found = pieces(tokenizer, ids)
    assert found == expected
    assert "".join(found) == tokenizer.decode(ids)
