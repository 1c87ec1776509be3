"""The dump's own log-probabilities against ours, token by token, with gaps made by hand."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from conftest import SAMPLE_RUNS, sample_dump
from test_artefacts import SCORING, _codes, _evidence

from ragen_diag.judging.artefacts import find_artefacts
from ragen_diag.judging.evidence import ScoringEvidence
from ragen_diag.judging.mismatch import mismatch
from ragen_diag.judging.remarks import find_remarks
from ragen_diag.metrics.agreement import RolloutGap, rollout_gap
from ragen_diag.metrics.trials import TemperatureTrial, temperature_trial
from ragen_diag.pipeline import analyze
from ragen_diag.report import words
from ragen_diag.report.product import Product
from ragen_diag.scoring.naive import token_logp
from ragen_diag.settings import Settings

NAN = math.nan


def test_two_tokens_of_a_thousand_make_the_mean_and_not_the_headline() -> None:
    """1000 tokens off by 0.01 and two off by 25, in ten rows; the two are told with their place."""
    own = [np.full(100, -1.0) for _ in range(10)] + [np.full(2, -26.0)]
    dumped = [np.full(100, -1.01) for _ in range(10)] + [np.full(2, -1.0)]
    gap = rollout_gap(own, dumped)
    assert gap.bias.value == gap.spread == pytest.approx(0.01)
    assert gap.mean == pytest.approx((1000 * 0.01 - 50) / 1002)
    assert gap.median_absolute == pytest.approx(0.01)
    # Of 1002 sizes in order the 99th percentile stands at 990.99: one of the small ones.
    assert gap.p99_absolute == pytest.approx(0.01)
    assert (gap.extremes, gap.tokens, gap.rows) == (2, 1002, 11)
    # The top 0.1 % of 1002 tokens is one: 25 of 10 + 50 nats.
    assert gap.top_share == pytest.approx(25 / 60)
    assert gap.largest == (10, 0, -25.0)
    assert mismatch(gap, 1e-5) is None
    told = _evidence(replace(SCORING, gap=replace(gap, top_share=0.6), largest_response="r000010"))
    note = {found.code: found for found in find_remarks(told)}["extreme_logprob_gaps"]
    assert "-25, is token 0 of the reasoning of r000010" in note.message
    assert words.finding_words("extreme_logprob_gaps").meaning


def test_what_is_no_number_or_not_there_is_left_out_and_counted() -> None:
    own = [np.array([-1.0, -2.0, -3.0]), np.array([-1.0]), np.array([-4.0, -5.0])]
    dumped = [np.array([-1.5, NAN, -math.inf]), None, np.array([0.0, 0.5])]
    gap = rollout_gap(own, dumped)
    assert (gap.tokens, gap.rows, gap.infinite, gap.zeros, gap.positive) == (3, 2, 1, 1, 1)
    assert gap.mean == pytest.approx((0.5 - 4.0 - 5.5) / 3)
    nothing = rollout_gap(own, [None] * 3)
    assert (nothing.bias.value, nothing.tokens, nothing.largest) == (None, 0, None)
    assert rollout_gap([own[0]], [np.full(3, -math.inf)]).infinite == 3
    assert rollout_gap(own[:1], own[:1]).top_share is None


def test_what_the_checkpoint_is_bears_on_its_log_probs() -> None:
    """Rounded weights always; experts where there is something to compare with."""
    gap = rollout_gap([np.full(9, -1.0)], [np.full(9, -1.0)])
    unknown = rollout_gap([np.full(9, -1.0)], [None])
    assert "quantised_checkpoint" in _remarked(replace(SCORING, quantised=True))
    assert "mixture_of_experts" in _remarked(replace(SCORING, experts=8, gap=gap))
    for scoring in (SCORING, replace(SCORING, experts=8, gap=unknown)):
        assert _remarked(scoring).isdisjoint({"quantised_checkpoint", "mixture_of_experts"})


def _remarked(scoring: ScoringEvidence) -> set[str]:
    found = {remark.code for remark in find_remarks(_evidence(scoring))}
    assert all(words.finding_words(code).meaning for code in found)
    return found


def _of(bias: float, spread: float) -> RolloutGap:
    """Half of 100 tokens are `bias + spread` off, half `bias - spread`."""
    gaps = np.repeat([bias + spread, bias - spread], 50)
    return rollout_gap([gaps], [np.zeros(100)])


@pytest.mark.parametrize(
    ("bias", "spread", "severity"),
    [
        (0.0, 0.04, None),  # the rounding of an engine, to both sides
        (0.0, 0.06, "warning"),
        (0.0, 0.21, "void"),
        (0.021, 0.0, "warning"),
        (-0.21, 0.0, "void"),
    ],
)
def test_a_bias_and_a_spread_are_a_mismatch(
    bias: float, spread: float, severity: str | None
) -> None:
    gap = _of(bias, spread)
    assert mismatch(gap, 1e-5) == severity
    assert mismatch(gap, 1.0) is None


@pytest.mark.parametrize(
    ("dumped", "told"),
    [
        (np.r_[np.zeros(2), np.full(98, -1.0)], "2 of 100 are exactly 0"),
        (np.r_[-math.inf, np.full(99, -1.0)], "1 of 100 are -inf"),
        (np.r_[np.full(60, 0.4), np.full(40, -1.0)], "60 of 100 are above 0"),
        (np.full(100, -1.0), None),
    ],
)
def test_log_probs_after_filtering_are_told(dumped: Any, told: str | None) -> None:
    gap = rollout_gap([np.full(100, -1.0)], [dumped])
    remarks = {found.code: found for found in find_remarks(_evidence(replace(SCORING, gap=gap)))}
    found = remarks.get("filtered_logprobs")
    assert (found is None) == (told is None)
    if found is not None and told is not None:
        assert told in found.message and words.finding_words(found.code).meaning
    # Certain tokens are 0 by rounding, in the dump and nearly so in ours.
    sure = rollout_gap([np.full(100, -1e-4)], [np.zeros(100)])
    assert "filtered_logprobs" not in _codes(find_remarks(_evidence(replace(SCORING, gap=sure))))


def test_rows_without_log_probs_are_told_where_others_have_them() -> None:
    gap = rollout_gap([np.full(10, -1.0)], [np.full(10, -1.0)])
    some = replace(SCORING, gap=gap, logprobs_lacking={"length_differs": 3, "no_logprobs": 1})
    found = {f.code: f for f in find_remarks(_evidence(some))}["logprobs_left_out"]
    assert "for 4 of 128 scored rows: length differs 3, no logprobs 1." in found.message
    none = replace(SCORING, gap=rollout_gap([], []), logprobs_lacking={"no_logprobs": 128})
    assert "logprobs_left_out" not in _codes(find_remarks(_evidence(none)))
    # All of the wrong length: that too must be said, although nothing is left to compare.
    wrong = replace(none, logprobs_lacking={"length_differs": 128})
    assert "logprobs_left_out" in _codes(find_remarks(_evidence(wrong)))


@pytest.mark.parametrize(("left", "told"), [(0.15, True), (0.16, False)])
def test_a_temperature_is_named_only_if_it_halves_the_gap(left: float, told: bool) -> None:
    trial = TemperatureTrial(used=1.0, best=0.6, spread={1.0: 0.3, 0.6: left}, rows=8)
    (found,) = find_artefacts(_evidence(replace(SCORING, gap=_of(0.0, 0.3), temperatures=trial)))
    assert ("give --temperature 0.6" in found.message) == told
    assert found.evidence["fitting_temperature"] == (0.6 if told else None)


def test_temperatures_are_compared_without_the_most_extreme_tokens() -> None:
    """100 tokens, so one is left out at each: 99 are off by 0.1 or by 0.2."""
    gaps = {1.0: np.r_[np.full(99, 0.2), 1.0], 0.5: np.r_[np.full(99, -0.1), -50.0]}
    trial = temperature_trial(gaps, 1.0, rows=3)
    assert trial.best == 0.5
    assert trial.spread == {1.0: pytest.approx(0.2), 0.5: pytest.approx(0.1)}
    tie = temperature_trial({0.5: gaps[1.0], 1.0: gaps[1.0]}, 1.0, rows=3)
    assert tie.best == 1.0


# Whole analyses of the sample run, whose own log-probs are at temperature 1


@pytest.fixture(scope="module")
def healthy() -> pl.DataFrame:
    sample = pl.read_parquet(sample_dump("healthy", 120))
    groups = sample["group_id"].unique(maintain_order=True).head(4)
    return sample.filter(pl.col("group_id").is_in(groups.implode()))


def _analyzed(table: pl.DataFrame, folder: Path, **settings: Any) -> Product:
    path = folder / "step_00120.parquet"
    table.write_parquet(path)
    checkpoint = str(SAMPLE_RUNS / "healthy" / "checkpoints" / "step_00120")
    return analyze(path, checkpoint, settings=Settings(**settings))


def _processed(table: pl.DataFrame, temperature: float) -> pl.DataFrame:
    """With the log-probs that an engine writes after dividing its logits."""
    from transformers import AutoModelForCausalLM

    folder = SAMPLE_RUNS / "healthy" / "checkpoints" / "step_00120"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    values = []
    for prompt, response in table.select("prompt_ids", "response_ids").iter_rows():
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *response]])).logits[0].double()
        logp_TV = torch.log_softmax(logits[len(prompt) - 1 : -1] / temperature, dim=-1)
        values.append([float(logp_V[t]) for logp_V, t in zip(logp_TV, response, strict=True)])
    return table.with_columns(rollout_logprobs=pl.Series(values, dtype=pl.List(pl.Float32)))


def test_log_probs_at_another_temperature_are_recognised(
    healthy: pl.DataFrame, tmp_path: Path
) -> None:
    cold = _processed(healthy, 0.6)
    product = _analyzed(cold, tmp_path)
    found = {f.code: f for f in product.result.findings}["scorer_mismatch"]
    assert found.evidence["fitting_temperature"] == 0.6
    assert "give --temperature 0.6." in found.message
    assert found.evidence["mean_absolute_gap_at_best"] < 1e-4
    again = _analyzed(cold, tmp_path, temperature=0.6)
    assert "scorer_mismatch" not in {f.code for f in again.result.findings}
    raw = _analyzed(healthy, tmp_path, temperature=0.6)
    other = {f.code: f for f in raw.result.findings}["scorer_mismatch"]
    assert "give --temperature 1." in other.message


def test_the_gap_is_measured_on_every_token(healthy: pl.DataFrame, tmp_path: Path) -> None:
    """One token of the first row's reasoning is 25 nats off, one row has a value too many."""
    values = healthy["rollout_logprobs"].to_list()
    ids = healthy["response_ids"].to_list()
    thought = ids[0].index(4) - 1  # the token before </think>; the reasoning begins after <think>
    values[0][thought] -= 25.0
    values[1].append(-1.0)
    product = _analyzed(healthy.with_columns(rollout_logprobs=pl.Series(values)), tmp_path)
    metrics, scoring = product.result.metrics, product.result.inputs.scoring
    assert metrics["rollout_logprob_gap"].value == pytest.approx(0.0, abs=1e-5)
    tokens = metrics["rollout_logprob_gap"].n
    assert metrics["rollout_logprob_gap_mean"].value == pytest.approx(25 / tokens, abs=1e-5)
    assert metrics["rollout_logprob_extremes"].value == pytest.approx(1 / tokens)
    assert metrics["rollout_logprob_top_share"].value == pytest.approx(1.0, abs=1e-3)
    # The reader itself drops values that can't be those of the row's ids.
    assert scoring is not None and scoring.logprobs_lacking == {"no_logprobs": 1}
    assert product.result.inputs.dump.notes["bad_rollout_logprobs"] == 1
    found = {f.code: f for f in product.result.findings}
    note = found["extreme_logprob_gaps"].evidence
    assert (note["largest_response"], note["largest_token"]) == ("r000000", thought - 1)
    assert "scorer_mismatch" not in found


# Which logits tell of which token


class Known:
    """A model of four words whose next-token probabilities after each word are written here."""

    device = "cpu"
    config = None
    TABLE = ((0.1, 0.2, 0.3, 0.4), (0.4, 0.3, 0.2, 0.1), (0.25,) * 4, (0.7, 0.1, 0.1, 0.1))

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:
        class Out:
            logits = torch.tensor(self.TABLE).log()[input_ids]

        return Out()

    __call__ = forward


def test_three_tokens_behind_three_of_the_prompt() -> None:
    """Told by the words at 2, 3 and 4: the last of the prompt and all but the last response's."""
    logp_T = token_logp(Known(), [3, 1, 0], [], [2, 3, 1])
    expected = np.log([0.3, 0.25, 0.1])  # after 0 comes 2, after 2 comes 3, after 3 comes 1
    np.testing.assert_allclose(logp_T, expected, rtol=1e-6)
    split = token_logp(Known(), [3, 1], [0], [2, 3, 1])
    np.testing.assert_array_equal(split, logp_T)
