"""That the benchmark compares like with like, and how many tokens scoring reads: on its own
rollouts and with a tiny model, without a look at a clock."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.scoring.contenders import CONTENDERS, Count, Outcome, counted, missing
from tests.benchmarks.scoring.exactness import error_per_token, oracle
from tests.benchmarks.scoring.models import random_model
from tests.benchmarks.scoring.plan import Race
from tests.benchmarks.scoring.race import Lane, Round
from tests.benchmarks.scoring.result import Result
from tests.benchmarks.scoring.slices import Slice, cut
from tests.benchmarks.scoring.table import table

VOCAB = 499
SHAPE = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def model() -> Any:
    return random_model("fp32", "cpu", num_attention_heads=4, **SHAPE)


def small(kind: str, prompts: int, rows: int) -> Slice:
    """A slice in the ids of the tiny model."""
    slice_ = cut(kind, prompts, rows)
    prompt_ids = [[i % VOCAB for i in ids] for ids in slice_.prompt_ids_P]
    answers = [[i % VOCAB for i in ids] for ids in slice_.reasoning_ids_R]
    return replace(slice_, prompt_ids_P=prompt_ids, reasoning_ids_R=answers)


def run(name: str, model: Any, slice_: Slice) -> tuple[Outcome, Count]:
    with counted(model) as count:
        return CONTENDERS[name](model, "fp32", slice_), count


@pytest.mark.parametrize("name", [name for name in CONTENDERS if missing(name) is None])
def test_contenders_score_the_same(name: str, model: Any) -> None:
    slice_ = small("short", 2, 6)
    exact = oracle(model, slice_, 4)
    assert len(exact) == 4
    outcome, _ = run(name, model, slice_)
    assert outcome.logp_RP.shape == (6, 2)
    # log_softmax of float32 on a CPU is off by about 1e-5 per token, which naive has to itself.
    assert error_per_token(outcome, exact, slice_) < 1.5e-5


def test_naive_feeds_every_pair_padded(model: Any) -> None:
    slice_ = small("short", 2, 6)
    longest = max(map(len, slice_.reasoning_ids_R))
    expected = sum(6 * (len(ids) + longest) for ids in slice_.prompt_ids_P)
    _, count = run("naive", model, slice_)
    assert (count.fed_tokens, count.head_rows) == (expected, expected)


def test_prompts_are_read_once_and_their_common_beginning_too(model: Any) -> None:
    slice_ = small("short", 8, 32)
    _, count = run("engine", model, slice_)
    rows = 8 * sum(map(len, slice_.reasoning_ids_R))
    # 204 tokens of each of 8 prompts are the same; the last token of a row is never fed.
    assert count.fed_tokens <= slice_.plain_tokens - 7 * 200 - 8 * 32
    assert count.fed_tokens >= 0.9 * rows


def test_a_collapsed_set_costs_what_its_distinct_tokens_do(model: Any) -> None:
    slice_ = small("collapsed", 2, 16)
    _, tree = run("engine", model, slice_)
    _, plain = run("no tree", model, slice_)
    # 96 of 160 tokens are common to all 16, so 15 x 96 are saved under each of 2 prompts; some of
    # the rest begin alike too.
    assert plain.fed_tokens - tree.fed_tokens >= 2 * 15 * 96
    assert plain.fed_tokens / tree.fed_tokens > 2.1


def test_the_document_and_the_table() -> None:
    def lane(kind: str, dtype: str, name: str, seconds: float) -> Lane:
        size = (kind, 2, 16)
        # 10 s at 100 GFLOP/s.
        rounds = [Round(seconds + 1, 5e10, 5e10), Round(seconds, 90e9, 110e9)]
        return Lane(Race(size, dtype, (name,), 2), name, 1e12, rounds, error=seconds / 1e7)

    lanes = [
        lane("short", "fp32", "engine", 12.0),
        lane("short", "fp32", "naive", 48.0),
        lane("short", "bf16", "engine", 14.0),
        lane("long", "fp32", "engine", 5.0),
        lane("long", "fp32", "lm-eval", 30.0),
        lane("collapsed", "fp32", "engine", 4.0),
        lane("collapsed", "fp32", "no tree", 10.0),
    ]
    result = Result(lanes, {})
    told = result.document()
    assert told["roofline_ratio_fp32"] == pytest.approx(1.2)
    assert told["roofline_ratio_bf16"] == pytest.approx(1.4)
    assert told["naive_over_ours_short"] == pytest.approx(4.0)
    assert told["lmeval_over_ours_short"] is None
    assert told["lmeval_over_ours_long"] == pytest.approx(6.0)
    assert told["tree_gain"] == pytest.approx(2.5)
    assert told["peak_mb_above_weights"] is None
    assert told["error_per_token_vs_float64"] == pytest.approx(1.2e-6)
    assert told["gemm_gflops"]["long 2x16"]["fp32"]["lm-eval"] == [[50, 50], [90, 110]]
    machine = {"accelerator": None, "cpu": "a cpu", "threads": 1, "python": "3", "model": "m"}
    about = {"machine": machine | {"parameters": 5_000_000}, "versions": {"torch": "2"}}
    lines = table(result, about, []).splitlines()
    assert max(map(len, lines)) <= 100
    assert sum("short 2x16" in line for line in lines) == 3


def test_slices_are_long_and_short_as_all_answers_are() -> None:
    every = cut("short", 8, 64).reasoning_ids_R
    some = cut("short", 8, 32).reasoning_ids_R
    assert np.mean([*map(len, some)]) == pytest.approx(np.mean([*map(len, every)]), rel=0.1)
    assert cut("short", 8, 32).own_R.tolist() == [p for p in range(8) for _ in range(4)]
