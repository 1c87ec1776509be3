"""Scoring on a GPU, with a random model of half a billion weights made there.

Run with `RAGEN_DIAG_REQUIRE_GPU=1 python -m pytest tests/gpu -s`; `-s` shows the figures that the
last test prints and no test judges.
"""

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scoring_cases import Policy, Rows

from ragen_diag.scoring import score
from ragen_diag.scoring.columns import PATHS, How, score_columns
from ragen_diag.scoring.naive import token_logp
from ragen_diag.scoring.probe import TOLERANCE
from tests.benchmarks.scoring.gemm import gemm_rate
from tests.benchmarks.scoring.models import HALF_BILLION, parameters, random_model

pytestmark = pytest.mark.gpu

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
VOCAB = HALF_BILLION["vocab_size"]


@pytest.fixture(scope="module", params=DTYPES)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """A dtype and a model of it."""
    if not torch.cuda.is_available():
        if os.environ.get("RAGEN_DIAG_REQUIRE_GPU") == "1":
            pytest.fail("no GPU")
        pytest.skip("no GPU")
    yield request.param, random_model(request.param, "cuda")
    torch.cuda.empty_cache()


def rows(prompts: int, responses: int, *, prompt: int = 250, response: int = 160) -> Rows:
    """Prompts that begin alike; responses of 14 tokens up to `response`, every fourth of which
    goes on from the first half of the one before."""
    rng = np.random.default_rng(0)
    shared = rng.integers(0, VOCAB, prompt - 40).tolist()
    answers: list[list[int]] = []
    for r in range(responses):
        answer = rng.integers(0, VOCAB, int(rng.integers(14, response + 1))).tolist()
        if r % 4 == 3:
            kept = answers[-1][: len(answers[-1]) // 2]
            answer = kept + answer[len(kept) :] + answer[:1]
        answers.append(answer)
    chats = [shared + rng.integers(0, VOCAB, 36 + p % 8).tolist() for p in range(prompts)]
    return Rows(chats, [[7, 8] if r % 3 == 1 else [] for r in range(responses)], answers)


def how(model: Any, dtype: str, batch_tokens: int | None = None) -> How:
    return How(
        model=model,
        dtype=DTYPES[dtype],
        vocab_size=VOCAB,
        accelerator=True,
        batch_tokens=batch_tokens,
        temperature=0.8,
    )


def policy(model: Any, dtype: str) -> Policy:
    return Policy(model, dtype=DTYPES[dtype], device="cuda", vocab_size=VOCAB)


def peak_of(work: Any) -> int:
    """Most bytes allocated above what there was."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("batch_tokens", [None, 100])
@pytest.mark.parametrize("path", PATHS)
def test_every_path_equals_one_by_one(
    case: tuple[str, Any], path: str, batch_tokens: int | None
) -> None:
    dtype, model = case
    cross = rows(3, 8)
    every = {(r, p) for r in range(8) for p in range(3)}
    got = score_columns(path, cross.pairs(), how(model, dtype, batch_tokens), every)
    for r, p in every:
        prompt, opening, z = cross.prompt_ids_P[p], cross.opening_ids_R[r], cross.reasoning_ids_R[r]
        expected_T = token_logp(model, prompt, opening, z, temperature=0.8)
        gap = abs(float((got.tokens[r, p] - expected_T).sum())) / len(z)
        assert gap < TOLERANCE[DTYPES[dtype]], (r, p)
        # Random tokens: a shift by one, or another row's tokens, is nats away.
        assert np.abs(got.tokens[r, p] - expected_T).max() < 0.5
        np.testing.assert_allclose(got.logp_UP[r, p], got.tokens[r, p].sum(), rtol=1e-9)


def test_the_fast_path_is_taken(case: tuple[str, Any]) -> None:
    dtype, model = case
    cross = rows(4, 16)
    scores = score(policy(model, dtype), cross, response_ids=cross.names)
    assert scores.noise.path == "ragged", scores.noise.note
    # The chance that single precision and the shape of a pass leave.
    assert scores.noise.per_token < TOLERANCE[DTYPES[dtype]]


def test_memory_does_not_grow_with_rows_or_prompts(case: tuple[str, Any]) -> None:
    dtype, model = case

    def peak(prompts: int, responses: int) -> int:
        cross = rows(prompts, responses)
        work = how(model, dtype, batch_tokens=512)
        return peak_of(lambda: score_columns("ragged", cross.pairs(), work, set()))

    peak(1, 8)
    small, large = peak(2, 8), peak(4, 64)
    assert large < 1.1 * small + 4e6


def test_figures_of_a_larger_set(case: tuple[str, Any]) -> None:
    """Seconds, roofline and memory, to be read."""
    dtype, model = case
    for prompt, response in ((250, 160), (800, 300)):
        cross = rows(8, 64, prompt=prompt, response=response)
        pairs = cross.pairs()
        tokens = sum(map(len, pairs.prompt_ids_P)) + 8 * int(pairs.stop_R.sum())

        def work(pairs: Any = pairs) -> None:
            score_columns("ragged", pairs, how(model, dtype), set())

        work()
        before = gemm_rate(dtype, "cuda")
        started = time.perf_counter()
        peak = peak_of(work)
        seconds = time.perf_counter() - started
        rate = (before + gemm_rate(dtype, "cuda")) / 2
        roof = 2 * parameters(model) * tokens / rate
        sys.stdout.write(
            f"\n{torch.cuda.get_device_name()} {dtype}, prompts of {prompt} tokens, 8x64: "
            f"{seconds:.2f} s, {seconds / roof:.2f} x roof at {rate / 1e12:.0f} TF/s, "
            f"{peak / 1e6:.0f} MB above the weights\n"
        )
        assert seconds > 0
