"""The whole flow: what may not change a verdict does not, and what must change it does."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import SAMPLE_RUNS, sample_dump

from ragen_diag.errors import DumpError, ResultError, UsageError
from ragen_diag.pipeline import analyze
from ragen_diag.report.product import Product
from ragen_diag.settings import Settings

RUN = "template_collapse"
CKPT = str(SAMPLE_RUNS / RUN / "checkpoints" / "step_00000")
VALUES = ("retrieval_accuracy", "retrieval_skill", "mi_estimate", "mi_seq_estimate", "mi_zscore")


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Eight prompts, eight responses each."""
    return pl.read_parquet(sample_dump(RUN, 0)).head(64)


@pytest.fixture(scope="module")
def original(table: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Product:
    return _analyze(table, tmp_path_factory.mktemp("original"))


def _analyze(table: pl.DataFrame, folder: Path, **settings: object) -> Product:
    path = folder / "step_00000.parquet"
    table.write_parquet(path)
    return analyze(path, CKPT, settings=Settings(**settings))


def _values(product: Product, names: tuple[str, ...] = VALUES) -> list[float | None]:
    return [product.result.metrics[name].value for name in names]


def test_the_order_of_rows_and_prompts_does_not_matter(
    table: pl.DataFrame, original: Product, tmp_path: Path
) -> None:
    shuffled = _analyze(table.sample(fraction=1.0, shuffle=True, seed=3), tmp_path)
    for name, metric in original.result.metrics.items():
        other = shuffled.result.metrics[name]
        for bound in ("value", "low", "high"):
            one, two = getattr(metric, bound), getattr(other, bound)
            assert one == two or two == pytest.approx(one, abs=1e-9), name
    assert shuffled.result.regime.label == original.result.regime.label
    assert shuffled.result.reward.within_prompt_var == pytest.approx(
        original.result.reward.within_prompt_var
    )


def test_a_prompt_under_two_ids_is_one_column(
    table: pl.DataFrame, original: Product, tmp_path: Path
) -> None:
    """The rows of one prompt once more, under an id of their own."""
    again = table.head(8).with_columns(
        group_id=pl.lit("copy"), sample_id=pl.concat_str(pl.lit("copy-"), "sample_id")
    )
    product = _analyze(pl.concat([table, again]), tmp_path)
    assert product.result.counts.prompts == 8
    assert product.result.counts.groups == 9
    names = ("retrieval_accuracy", "retrieval_skill", "mi_estimate", "mi_seq_estimate")
    assert _values(product, names) == pytest.approx(_values(original, names), abs=1e-9)
    ids = product.prompts["group_ids"].to_list()
    assert [table["group_id"][0], "copy"] in ids


def test_ragen_compat_is_the_public_formula(
    table: pl.DataFrame, original: Product, tmp_path: Path
) -> None:
    """The mean over tokens goes inside the mixture; written out again from the scores."""
    product = _analyze(table, tmp_path, compat="ragen")
    scores = original.scores
    assert scores is not None
    mean_RP = scores.logp_RP / scores.n_tokens_R[:, None]
    matched = mean_RP[np.arange(64), scores.own_R]
    marginal = np.log(np.exp(mean_RP).sum(axis=1)) - np.log(8)
    expected = {
        "mi_estimate": (matched - marginal).mean(),
        "marginal_std": marginal.std(),
        "mi_zscore": ((matched - marginal) / (marginal.std() + 1e-3)).mean(),
        "reasoning_entropy_est": -marginal.mean(),
        "conditional_entropy_est": -matched.mean(),
    }
    for name, value in expected.items():
        assert product.result.metrics[name].value == pytest.approx(float(value), abs=1e-9)
    assert product.result.metrics["mi_estimate"].value != pytest.approx(
        original.result.metrics["mi_estimate"].value, rel=1e-3
    )
    assert "settings_compat" in {finding.code for finding in product.result.findings}


def test_an_open_tag_at_the_end_of_prompts_changes_nothing(
    table: pl.DataFrame, original: Product, tmp_path: Path
) -> None:
    """As trainers that prefill the tag write it, and as those whose text then lost it."""
    text = table.select("step", "group_id", "prompt", "response", "reward")
    cut = pl.col("response").str.strip_prefix("<think> ")
    prefilled = text.with_columns(cut, prompt=pl.col("prompt") + " <think>")
    for name, variant, mark in (("a", prefilled, True), ("b", text, False)):
        (tmp_path / name).mkdir()
        product = _analyze(variant, tmp_path / name)
        assert product.result.inputs.spans.prefilled is mark
        assert _values(product) == pytest.approx(_values(original), abs=1e-6)
        texts = product.prompts["prompt"].str.strip_chars_end()
        assert texts.to_list() == original.prompts["prompt"].to_list()


def test_without_tags_whole_responses_are_scored(table: pl.DataFrame, tmp_path: Path) -> None:
    bare = table.select("group_id", "prompt", "reward").with_columns(
        response=table["response"].str.replace_all(r"</?think> ?", "")
    )
    product = _analyze(bare, tmp_path)
    assert product.result.counts.scored_rows == 64
    assert product.result.inputs.spans.open is None
    assert product.result.metrics["valid_thinking_rate"].value is None
    assert "no_reasoning_tags" in {finding.code for finding in product.result.findings}


def test_a_step_that_lost_its_tags_is_seen_against_a_baseline(
    table: pl.DataFrame, original: Product, tmp_path: Path
) -> None:
    """Alone it reads as a run without tags; the baseline knows better."""
    lost = table.select("group_id", "prompt", "reward").with_columns(response=pl.lit("up up"))
    path = tmp_path / "step_00040.parquet"
    lost.write_parquet(path)
    result = analyze(path, CKPT, baseline=original.result).result
    assert result.regime.label == "format_collapse"
    assert result.counts.excluded == {"no_reasoning_span": 64}
    assert result.metrics["mi_seq_estimate"].value is None
    assert result.metrics["mi_seq_estimate"].reason


def test_a_baseline_of_other_settings_is_refused(original: Product, tmp_path: Path) -> None:
    hot = original.result.inputs.model_copy(
        update={"settings": {**original.result.inputs.settings, "temperature": 0.5}}
    )
    baseline = original.result.model_copy(update={"inputs": hot})
    with pytest.raises(ResultError, match=r"temperature 0\.5 there, 1\.0 here"):
        analyze(sample_dump(RUN, 0), CKPT, settings=Settings(limit=2), baseline=baseline)


def test_a_subset_of_prompts_is_drawn_and_told(table: pl.DataFrame, tmp_path: Path) -> None:
    product = _analyze(table, tmp_path, limit=4, seed=1)
    assert product.result.counts.prompts == 4
    assert product.result.counts.excluded == {"not_sampled": 32}
    assert product.responses["own"].drop_nulls().n_unique() == 4
    assert "prompt_subset" in {finding.code for finding in product.result.findings}


def test_later_turns_are_left_out_and_counted(table: pl.DataFrame, tmp_path: Path) -> None:
    first = table.with_columns(trajectory_id=pl.col("sample_id"), turn=pl.lit(0, dtype=pl.Int32))
    second = first.with_columns(
        turn=pl.lit(1, dtype=pl.Int32), sample_id=pl.col("sample_id") + "-later"
    )
    product = _analyze(pl.concat([first, second]), tmp_path)
    assert product.result.inputs.dump.notes["later_turn"] == 64
    assert product.result.counts.rows == 64


def test_the_wrong_checkpoint_is_noticed() -> None:
    """Rollouts of the start under the policy of the end: their log-probs disagree."""
    last = str(SAMPLE_RUNS / RUN / "checkpoints" / "step_00120")
    result = analyze(sample_dump(RUN, 0), last).result
    codes = {finding.code: finding.severity for finding in result.findings}
    assert codes["scorer_mismatch"] == "void"
    assert "step_mismatch" in codes
    assert result.regime.label == "scorer_mismatch"


def test_a_step_that_is_not_there_is_an_error() -> None:
    with pytest.raises(DumpError, match="no rows of step 7; steps: 0"):
        analyze(sample_dump(RUN, 0), settings=Settings(step=7))
    with pytest.raises(UsageError, match="choose one with --step"):
        analyze(SAMPLE_RUNS / RUN / "rollouts")


def test_rows_are_accounted_for(original: Product) -> None:
    counts = original.result.counts
    assert counts.scored_rows + sum(counts.excluded.values()) == counts.rows
    responses = original.responses
    assert responses["matched"].null_count() == responses["excluded"].is_not_null().sum()
    assert responses["response_id"].n_unique() == counts.rows
    assert original.scores is not None
    scored = responses.filter(pl.col("own").is_not_null())
    assert scored["response_id"].to_list() == original.scores.response_ids
    np.testing.assert_allclose(
        scored["matched"].to_numpy(),
        original.scores.logp_RP[np.arange(scored.height), scored["own"].to_numpy()],
    )


def test_a_lone_close_tag_is_no_span_where_ids_tell_all(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    """Text alone may have lost the open tag that the model saw; token ids lose nothing."""
    tag = table["response_ids"][0][0]
    torn = table.with_columns(
        response=pl.col("response").str.strip_prefix("<think> "),
        response_ids=pl.col("response_ids").list.slice(1),
        rollout_logprobs=pl.col("rollout_logprobs").list.slice(1),
    )
    assert table["response_ids"].list.first().unique().to_list() == [tag]
    result = _analyze(torn, tmp_path).result
    assert result.inputs.spans.counts["missing"] == 64
    assert result.regime.label == "format_collapse"
    (tmp_path / "text").mkdir()
    text = torn.drop("prompt_ids", "response_ids", "rollout_logprobs")
    implied = _analyze(text, tmp_path / "text").result
    assert implied.inputs.spans.prefilled
    assert implied.inputs.spans.counts["valid"] == 64


def test_texts_are_those_of_the_ids(table: pl.DataFrame, original: Product, tmp_path: Path) -> None:
    """A trainer that decodes without special tokens writes texts that lack the tags."""
    stripped = table.with_columns(pl.col("response").str.replace_all(r"</?(think|answer)> ?", ""))
    product = _analyze(stripped, tmp_path)
    assert product.result.inputs.spans.counts["valid"] == 64
    assert _values(product) == _values(original)


def test_splits_are_not_mixed(table: pl.DataFrame, tmp_path: Path) -> None:
    mixed = table.with_columns(
        split=pl.when(pl.int_range(pl.len()) < 40).then(pl.lit("train")).otherwise(pl.lit("eval"))
    )
    with pytest.raises(DumpError, match=r"several splits \(train 40, eval 24\)"):
        _analyze(mixed, tmp_path)


def test_tags_that_no_response_has_are_a_mistake(table: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="<foo>,</foo>: no response has either tag"):
        _analyze(table, tmp_path, reasoning_tags=("<foo>", "</foo>"))
    named = _analyze(table, tmp_path, reasoning_tags=("<think>", "</think>"))
    assert named.result.inputs.spans.counts["valid"] == 64
