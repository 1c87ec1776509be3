"""The sample runs are judged as what they are; every number can be recomputed from the files."""

import math
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import SAMPLE_RUNS, analyzed, sample_dump, sample_steps

from ragen_diag.checkpoints.load import open_checkpoint
from ragen_diag.checkpoints.locate import locate
from ragen_diag.dumps import read_dump
from ragen_diag.groups import make_groups
from ragen_diag.report.folder import default_folder
from ragen_diag.report.product import Product
from ragen_diag.report.terminal import verdict_lines
from ragen_diag.scoring import read_scores, score, write_scores
from ragen_diag.scoring.naive import score_naive
from ragen_diag.spans import choose_tags, find_spans

RUNS = [
    "healthy",
    "template_collapse",
    "template_collapse_filtered",
    "low_entropy_collapse",
    "compressed",
    "format_collapse",
]


def _last(run: str) -> int:
    return sample_steps(run)[-1]


@pytest.mark.parametrize(
    ("run", "first", "label"),
    [
        ("template_collapse", True, "diverse_reasoning"),
        ("template_collapse", False, "template_collapse"),
        ("healthy", False, "diverse_reasoning"),
        ("low_entropy_collapse", False, "low_entropy_collapse"),
        ("compressed", False, "compressed_reasoning"),
    ],
)
def test_regimes_with_intervals_clear_of_their_thresholds(
    run: str, first: bool, label: str
) -> None:
    regime = analyzed(run, 0 if first else _last(run)).result.regime
    assert regime.label == label
    for axis in regime.axes.values():
        assert axis.low is not None and axis.high is not None and axis.threshold is not None
        assert not axis.low <= axis.threshold <= axis.high, axis


def test_format_collapse_ends_without_mi() -> None:
    result = analyzed("format_collapse", _last("format_collapse")).result
    assert result.regime.label == "format_collapse"
    assert result.regime.axes["mi"].state == "not_available"
    assert "format_collapse" in {finding.code for finding in result.findings}
    for name in ("mi_estimate", "mi_seq_estimate", "retrieval_accuracy"):
        assert result.metrics[name].value is None
        assert result.metrics[name].reason
    assert analyzed("format_collapse", 0).result.regime.label == "diverse_reasoning"


@pytest.mark.parametrize("run", ["template_collapse", "healthy", "compressed"])
def test_metrics_recomputed_from_scores_parquet(run: str, tmp_path: Path) -> None:
    """Plain numpy on the published file, written apart from the package's own code."""
    product = analyzed(run, _last(run))
    assert product.scores is not None
    write_scores(product.scores, tmp_path / "scores.parquet")
    table = pl.read_parquet(tmp_path / "scores.parquet")
    L = np.array(table["logp"].to_list())
    own, T = table["own"].to_numpy(), table["n_tokens"].to_numpy()
    P = L.shape[1]
    matched = L[np.arange(len(L)), own]
    marginal = np.logaddexp.reduce(L, axis=1) - math.log(P)
    best = L.max(axis=1, keepdims=True) == L
    credit = best[np.arange(len(L)), own] / best.sum(axis=1)

    def mean(x: np.ndarray) -> float:
        return float(np.mean([x[own == p].mean() for p in range(P)]))

    accuracy = mean(credit)
    expected = {
        "retrieval_accuracy": accuracy,
        "retrieval_skill": (accuracy - 1 / P) / (1 - 1 / P),
        "mi_seq_estimate": mean(matched - marginal),
        "mi_estimate": mean((matched - marginal) / T),
        "conditional_entropy_est": -mean(matched / T),
        "conditional_entropy_seq_est": -mean(matched),
        "reasoning_entropy_est": -mean(marginal / T),
        "reasoning_entropy_seq_est": -mean(marginal),
        "marginal_std": float((marginal / T).std()),
        "marginal_std_seq": float(marginal.std()),
        "mi_zscore": mean((matched - marginal) / T) / (float((marginal / T).std()) + 1e-3),
        "mi_zscore_seq": mean(matched - marginal) / (float(marginal.std()) + 1e-3),
    }
    metrics = product.result.metrics
    for name, value in expected.items():
        assert metrics[name].value == pytest.approx(value, abs=1e-9, rel=0), name
    for seq in ("", "_seq"):
        h, i = metrics[f"reasoning_entropy{seq}_est"].value, metrics[f"mi{seq}_estimate"].value
        conditional = metrics[f"conditional_entropy{seq}_est"].value
        assert h is not None and i is not None and conditional is not None
        assert h == pytest.approx(i + conditional, abs=1e-9, rel=0)


def test_scores_file_reads_back_equal(tmp_path: Path) -> None:
    scores = analyzed("template_collapse", 0).scores
    assert scores is not None
    write_scores(scores, tmp_path / "scores.parquet")
    again = read_scores(tmp_path / "scores.parquet")
    assert np.array_equal(again.logp_RP, scores.logp_RP)
    assert again.response_ids == scores.response_ids


@pytest.mark.parametrize("run", RUNS)
def test_naive_and_fast_scorer_agree_on_every_checkpoint(run: str) -> None:
    """Four prompts with all of their valid responses, float32, to 2e-5 nats per token."""
    table = read_dump([sample_dump(run, 0)]).table.head(32)
    choice = choose_tags(table["prompt"].to_list(), table["response"].to_list(), "auto")
    spans = find_spans(table["prompt"].to_list(), table["response"].to_list(), choice)
    for step in sample_steps(run):
        located = locate(f"step_{step:05d}", [sample_dump(run, 0)])
        checkpoint = open_checkpoint(located, dtype="float32", device="cpu")
        groups = make_groups(table, spans, choice.tags, checkpoint.tokenizer)
        ids = [str(row) for row in groups.row_R]
        fast_RP = score(checkpoint, groups, response_ids=ids, batch_tokens=256).logp_RP
        naive_RP = score_naive(
            checkpoint.model, groups.prompt_ids_P, groups.opening_ids_R, groups.reasoning_ids_R
        )
        n_tokens_R = np.array([len(ids) for ids in groups.reasoning_ids_R])
        assert np.abs(fast_RP - naive_RP).max() > 0  # two ways, not one
        assert (np.abs(fast_RP - naive_RP) / n_tokens_R[:, None]).max() < 2e-5


@pytest.mark.parametrize("run", RUNS)
def test_the_stored_policy_sampled_the_dumps(run: str) -> None:
    """The dump's own log-probs are those of the stored weights: scorer and sampler are one."""
    for step in (0, _last(run)):
        gap = analyzed(run, step).result.metrics["rollout_logprob_gap"]
        if gap.value is not None:
            assert abs(gap.value) < 1e-5
    assert analyzed(run, 0).result.metrics["rollout_logprob_gap"].n > 200


@pytest.mark.parametrize("run", RUNS)
def test_dumps_are_complete(run: str) -> None:
    dumps = sorted((SAMPLE_RUNS / run / "rollouts").glob("step_*.parquet"))
    assert len(dumps) >= 10
    prompts = None
    for dump in dumps:
        rollouts = read_dump([dump])
        table = rollouts.table
        assert rollouts.notes == {}
        assert table.height == 256
        assert table.group_by("group_id").len()["len"].unique().to_list() == [8]
        assert table["group_source"].unique().to_list() == ["explicit"]
        assert prompts is None or prompts == table["prompt"].to_list()
        prompts = table["prompt"].to_list()


def test_first_checkpoints_are_one_and_the_folder_is_small() -> None:
    first = {
        (SAMPLE_RUNS / run / "checkpoints/step_00000/model.safetensors").read_bytes()
        for run in RUNS
    }
    assert len(first) == 1
    size = sum(path.stat().st_size for path in SAMPLE_RUNS.rglob("*") if path.is_file())
    assert size < 30e6


def test_the_collapse_is_seen_against_a_baseline_too() -> None:
    from ragen_diag.pipeline import analyze

    start: Product = analyzed("template_collapse", 0)
    last = _last("template_collapse")
    dump = sample_dump("template_collapse", last)
    result = analyze(dump, f"step_{last:05d}", baseline=start.result).result
    assert result.regime.label == "template_collapse"
    assert "baseline" in result.regime.axes["mi"].source


def test_the_readme_shows_what_the_command_prints() -> None:
    run, step = "template_collapse", 120
    result = analyzed(run, step).result
    folder = default_folder(result.inputs.dump, result.inputs.checkpoint)
    printed = "\n".join(line.plain for line in verdict_lines(result, folder))
    readme = (SAMPLE_RUNS.parent / "README.md").read_text("utf-8")
    # The last digits may differ between processors.
    assert _without_digits(f"```text\n{printed}\n```") in _without_digits(readme)


def _without_digits(text: str) -> str:
    return re.sub(r"-?\d+(?:\.\d+)?", "#", text)
