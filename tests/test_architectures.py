"""Every kind of model in use is scored right by some path, or refused in words."""

import numpy as np
import pytest
import torch
from scoring_cases import MODELS, TOLERANCE, VOCAB, Policy, Rows, how, per_token, rows, tiny

from ragen_diag.scoring import score
from ragen_diag.scoring.columns import score_columns
from ragen_diag.scoring.naive import score_naive


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_equals_the_reference(name: str) -> None:
    model, cross = tiny(name), rows()
    reference_RP = score_naive(model, *cross.lists())
    # Else prompts would not matter and nothing would be tested.
    assert np.ptp(reference_RP, axis=1).min() > 1e-3
    before = model.config._attn_implementation
    for batch_tokens in (None, 1, 7, 16):
        result = score(Policy(model), cross, response_ids=cross.names, batch_tokens=batch_tokens)
        assert per_token(result.logp_RP, reference_RP, cross) < TOLERANCE
        assert result.noise.path == MODELS[name][2]
        assert 0 <= result.noise.per_token <= result.noise.tolerance == TOLERANCE
    assert model.config._attn_implementation == before
    full_RP = score_columns("full", cross.pairs(), how(model, 64), set()).logp_UP
    assert per_token(full_RP, reference_RP, cross) < TOLERANCE


WHY_NOT = {
    "gpt-oss-sinks": "GptOssAttention asks for another attention (s_aux)",
    "falcon-alibi": "the attention of FalconForCausalLM can't be replaced",
    "mamba": "the attention of MambaForCausalLM can't be replaced",
    "dynamic-rope": "rotary frequencies change beyond 16 tokens",
}


@pytest.mark.parametrize("name", WHY_NOT)
def test_why_the_fast_path_was_not_taken_is_said(name: str) -> None:
    cross = rows()
    result = score(Policy(tiny(name)), cross, response_ids=cross.names)
    assert result.noise.note is not None and WHY_NOT[name] in result.noise.note


@pytest.mark.parametrize("bound", [32, 64])
def test_a_bound_of_length_that_some_pairs_alone_cross(bound: int) -> None:
    """Prompt 4 stays under a bound of 32 and most of its pairs do not: others are on one side of it
    all along, the longest and the median pair among them."""
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, "factor": 4.0}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [1.5, 2.0, 3.0, 4.0]}
    rope |= {"original_max_position_embeddings": bound}
    model = tiny("phi3", rope_parameters=rope, original_max_position_embeddings=bound)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, VOCAB, n).tolist() for n in (40, 8, 9, 10, 27)]
    responses = [rng.integers(0, VOCAB, n).tolist() for n in (10, 6, 7, 8)]
    cross = Rows(prompts, [[]] * 4, responses)
    result = score(Policy(model), cross, response_ids=cross.names)
    assert per_token(result.logp_RP, score_naive(model, *cross.lists()), cross) < TOLERANCE
    # Where no pair comes near the bound nothing speaks against the fast path.
    assert result.noise.path == ("full" if bound == 32 else "ragged")


@pytest.mark.parametrize("path", ["ragged", "prefix", "full"])
@pytest.mark.parametrize("name", ["mistral-window", "gemma2-softcap", "qwen2-window"])
def test_around_the_window(name: str, path: str) -> None:
    """A window of 8 that fills up in the prompt, exactly at its end, and in the response."""
    model = tiny(name)
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, VOCAB, n).tolist() for n in (6, 7, 8, 9)]
    responses = [rng.integers(0, VOCAB, n).tolist() for n in (1, 2, 3, 5)]
    cross = Rows(prompts, [[]] * 4, responses)
    reference_RP = score_naive(model, *cross.lists())
    for batch_tokens in (3, 64):
        found_RP = score_columns(path, cross.pairs(), how(model, batch_tokens), set()).logp_UP
        assert per_token(found_RP, reference_RP, cross) < TOLERANCE


def test_a_scaled_head_that_is_unknown_is_not_taken_for_a_plain_one() -> None:
    """A model that does something else with its logits than its configuration says."""
    model, cross = tiny("llama-gqa-tied"), rows()
    plain = model.forward

    def scaled(*args: object, **kwargs: object) -> object:
        output = plain(*args, **kwargs)
        output.logits = output.logits * 1.01
        return output

    scaled.__signature__ = __import__("inspect").signature(plain)  # type: ignore[attr-defined]
    model.forward = scaled
    reference_RP = score_naive(model, *cross.lists())
    result = score(Policy(model), cross, response_ids=cross.names)
    assert result.noise.path == "prefix"
    assert per_token(result.logp_RP, reference_RP, cross) < TOLERANCE


@pytest.mark.parametrize("name", ["llama-gqa-tied", "phi-biased-head", "cohere-scaled"])
def test_double_precision_is_kept(name: str) -> None:
    """The fast path in float64 differs from the reference by rounding of float64 alone, so that it
    computes the same and not only nearly the same."""
    model, cross = tiny(name).double(), rows()
    reference_RP = score_naive(model, *cross.lists())
    found_RP = score_columns("ragged", cross.pairs(), how(model, 16), set()).logp_UP
    assert per_token(found_RP, reference_RP, cross) < 1e-9
