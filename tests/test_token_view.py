"""What each token tells of its prompt: sums, a naive reference, and the text in pieces."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_cases import VOCAB, Policy, Rows, tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ragen_diag.errors import ScoringError
from ragen_diag.metrics.pointwise import pointwise_mi
from ragen_diag.pipeline.run.texts import pieces
from ragen_diag.scoring import score
from ragen_diag.scoring.tokens import score_tokens


@dataclass
class Turns(Rows):
    """Every other prompt is of the second turn."""

    @property
    def turn_P(self):
        return np.arange(len(self.prompt_ids_P)) % 2


def some_rows(kind: type[Rows] = Rows) -> Rows:
    generator = np.random.default_rng(0)

    def ids(n: int) -> list[int]:
        return generator.integers(0, VOCAB, n).tolist()

    system = ids(6)
    prompts = [system + ids(n) for n in (3, 4, 5, 3, 4, 6)]
    return kind(prompts, [ids(n % 2) for n in range(12)], [ids(n % 5 + 1) for n in range(12)])


def naive_tokens(model, prompt, opening, reasoning, temperature) -> list[float]:
    """log p of every reasoning token by one plain pass, no cache and no batch."""
    ids = torch.tensor([[*prompt, *opening, *reasoning]])
    with torch.inference_mode():
        logp = (model(ids).logits[0].double() / temperature).log_softmax(-1)
    first = len(prompt) + len(opening)
    return [float(logp[first + t - 1, token]) for t, token in enumerate(reasoning)]


@pytest.mark.parametrize(
    ("name", "path", "kind", "temperature"),
    [
        ("qwen3", "ragged", Rows, 1.0),
        ("mistral-window", "ragged", Turns, 0.7),
        ("gemma2-softcap", "ragged", Rows, 1.3),
        ("gpt-oss-sinks", "prefix", Turns, 1.0),
        ("mamba", "full", Turns, 0.7),
    ],
)
def test_tokens_are_those_of_a_plain_pass_and_add_up_to_the_rows_mi(name, path, kind, temperature):
    model, rows = tiny(name), some_rows(kind)
    asked = [7, 0, 3, 11]
    names, how = rows.names, {"temperature": temperature}
    found = score_tokens(Policy(model), rows, asked, response_ids=names, **how)
    whole = score(Policy(model), rows, response_ids=names, **how)
    assert whole.noise.path == path
    for row, logp_PT in zip(asked, found, strict=True):
        own, reasoning = int(rows.own_R[row]), rows.reasoning_ids_R[row]
        assert logp_PT.shape == (len(rows.prompt_ids_P), len(reasoning))
        candidates = np.flatnonzero(rows.turn_P == rows.turn_P[own])
        for p, prompt in enumerate(rows.prompt_ids_P):
            plain = naive_tokens(model, prompt, rows.opening_ids_R[row], reasoning, temperature)
            expected = plain if p in candidates else [-np.inf] * len(reasoning)
            assert logp_PT[p] == pytest.approx(expected, abs=2e-4)
        # Matched minus marginal of the whole response, from the matrix of the normal scorer alone.
        logp_P = whole.logp_RP[row, candidates]
        marginal = np.logaddexp.reduce(logp_P) - np.log(len(candidates))
        expected_mi = whole.logp_RP[row, own] - marginal
        assert pointwise_mi(logp_PT, own).sum() == pytest.approx(expected_mi, abs=1e-4)


def test_a_row_that_cannot_be_scored_is_named_as_everywhere():
    rows = Rows([[1], [2]], [[], []], [[1], [VOCAB]])
    with pytest.raises(ScoringError, match=f"response r1 holds token id {VOCAB}"):
        score_tokens(Policy(tiny("qwen3")), rows, [1], response_ids=rows.names)


@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 2**31))
def test_every_prefix_tells_at_most_the_log_of_the_candidates(prompts, tokens, seed):
    logp_PT = np.random.default_rng(seed).normal(-3, 2, (prompts, tokens)).clip(max=0)
    told = np.cumsum(pointwise_mi(logp_PT, 0))
    assert (told <= np.log(prompts) + 1e-9).all()
    marginal = np.logaddexp.reduce(logp_PT.sum(axis=1)) - np.log(prompts)
    assert told[-1] == pytest.approx(logp_PT[0].sum() - marginal)
    more = np.concatenate([logp_PT, np.full((1, tokens), -np.inf)])
    assert np.cumsum(pointwise_mi(more, 0)) == pytest.approx(told)
    with pytest.raises(ValueError, match="not finite"):
        pointwise_mi(more, prompts)


def byte_fallback():
    """Bytes where no word fits, as in Llama 2: ids below 256."""
    words = {"▁go": 256, "▁left": 257, "hello": 258}
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | words
    plain = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    plain.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=plain)


def byte_level():
    """A sign for every byte, as in GPT-2."""
    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {sign: place for place, sign in enumerate([*signs, "Ġgo", "Ġleft", "hello"])}
    plain = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    plain.decoder = decoders.ByteLevel()
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=plain)


LEFT = list("左".encode())


def test_pieces_by_hand():
    # A character of three bytes over three tokens belongs to the one that completes it.
    assert pieces(byte_fallback(), [256, *LEFT, 257]) == ("go", "", "", "左", " left")
    # A stray byte behind it makes signs of error of them all; the word after it stays whole.
    assert pieces(byte_fallback(), [*LEFT, LEFT[0], 258])[-1] == "hello"
    left = byte_level()("左")["input_ids"]
    assert pieces(byte_level(), [256, *left, 257]) == (" go", "", "", "左", " left")
    assert pieces(byte_level(), [left[0], 258]) == ("\ufffd", "hello")
    assert pieces(byte_level(), []) == ()


@pytest.mark.parametrize("make", [byte_fallback, byte_level])
def test_pieces_joined_are_the_decoded_text(make):
    tokenizer = make()
    left = LEFT if make is byte_fallback else tokenizer("左")["input_ids"]

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.sampled_from([[256], [257], [258], left, left[:1], left[:2]]), max_size=7))
    def joined(parts):
        ids = [one for part in parts for one in part]
        found = pieces(tokenizer, ids)
        assert len(found) == len(ids) and "".join(found) == tokenizer.decode(ids)

    joined()
