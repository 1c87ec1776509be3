"""What practitioners meet in their rewards and answers, from the dump to the findings.

Every dump is small enough to work out its numbers by hand; none needs a checkpoint.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ragen_diag.judging.findings import Finding
from ragen_diag.metrics.information import measure
from ragen_diag.pipeline import analyze
from ragen_diag.report.product import Product
from ragen_diag.settings import Settings

Row = dict[str, Any]


def _analyze(rows: list[Row], folder: Path, **settings: object) -> Product:
    path = folder / "step_00010.parquet"
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    return analyze(path, settings=Settings(**settings))


def _findings(product: Product) -> dict[str, Finding]:
    return {finding.code: finding for finding in product.result.findings}


def _value(product: Product, name: str) -> float | None:
    return product.result.metrics[name].value


def _row(group: str, response: str, reward: float | None, **more: object) -> Row:
    prompt = f"Task of {group}."
    return {"group_id": group, "prompt": prompt, "response": response, "reward": reward, **more}


def test_equal_texts_and_equal_rewards_are_told_apart(tmp_path: Path) -> None:
    ends = ["", " ", "\n", "\n\n", "\t", "  ", " \n", "\n "]
    rows = [_row("same", "go left", 1.0) for _ in ends]
    rows += [_row("spaced", f"go left{end}", 1.0) for end in ends]
    rows += [_row("other", f"try {number}", 0.0) for number in range(8)]
    product = _analyze(rows, tmp_path)
    flat = product.result.reward.flat_groups
    assert (flat["flat"], flat["identical_texts"], flat["all_failed"]) == (3, 2, 1)
    told = product.prompts.select("reward_var", "distinct_exact", "distinct").rows()
    assert told == [(0.0, 1 / 8, 1 / 8), (0.0, 1.0, 1 / 8), (0.0, 1.0, 1.0)]
    assert product.groups["distinct"].to_list() == [1 / 8, 1 / 8, 1.0]
    metric = product.result.metrics["distinct_ratio_in_groups"]
    assert (metric.value, metric.n) == (pytest.approx((1 / 8 + 1 / 8 + 1) / 3), 3)
    found = _findings(product)
    assert found["few_distinct_texts"].evidence["flat_with_one_text"] == 2
    assert found["identical_texts"].evidence["groups_with_one_text"] == 2
    assert found["flat_groups"].evidence["flat_with_different_texts"] == 1


@pytest.mark.parametrize("finished", [0, 1])
def test_truncated_throughout(finished: int, tmp_path: Path) -> None:
    """16 responses of 256 tokens at the cap, reward 0; then one of them of 40 tokens, solved."""
    rows = [
        _row(
            f"p{number // 4}",
            f"text {number} ...",
            0.0,
            prompt_ids=[1, 2],
            response_ids=[number] * 256,
            finish_reason="length",
        )
        for number in range(16)
    ]
    if finished:
        rows[0] |= {"reward": 1.0, "response_ids": [0] * 40, "finish_reason": "stop"}
    product = _analyze(rows, tmp_path)
    share = (16 - finished) / 16
    assert _value(product, "truncated_share") == share
    found = _findings(product)["truncated"]
    assert found.severity == "void"
    assert found.evidence["share_at_longest"] == share
    assert found.evidence["flat_groups_all_truncated"] == 4 - finished
    flat = product.result.reward.flat_groups
    assert (flat["truncated"], flat["flat"]) == (4 - finished, 4 - finished)
    # That nothing else is wrong is no reassurance: it is the first that is told.
    assert product.result.findings[0] == found


def _shells(reward: float, truth: object = None) -> list[Row]:
    """8 prompts with 4 responses each; thoughts vary, and all but one answer are empty."""
    return [
        _row(
            f"p{number // 4}",
            f"<think>thought {number}</think><answer>{'7' if number == 5 else ''}</answer>",
            reward,
            ground_truth=str(number // 4) if truth is None else truth,
        )
        for number in range(32)
    ]


def test_an_accepted_empty_answer_is_told(tmp_path: Path) -> None:
    product = _analyze(_shells(1.0), tmp_path)
    assert _value(product, "valid_thinking_rate") == 1.0
    assert _value(product, "empty_answer_rate") == 31 / 32
    assert _value(product, "answer_top1_share") == 31 / 32
    assert _value(product, "distinct_answer_ratio") == 1 / 8
    # Texts as a whole show nothing: every one differs.
    assert _value(product, "distinct_ratio") == 1.0
    found = _findings(product)
    empty = found["empty_answers_rewarded"]
    assert empty.message.startswith("31 of 31 empty answers earn 1,")
    assert (empty.evidence["answers"], empty.evidence["missing_answers"]) == (32, 0)
    same = found["answers_independent_of_prompt"].evidence
    assert (same["prompts_sharing"], same["prompts"], same["share_at_best"]) == (8, 8, 1.0)
    assert (same["commonest_answer"], same["expected_answers"]) == ("(empty)", 8)


def test_empty_answers_that_fail_are_counted_and_no_loophole(tmp_path: Path) -> None:
    rows = _shells(0.0)
    rows[5]["reward"] = 1.0
    product = _analyze(rows, tmp_path)
    assert _value(product, "empty_answer_rate") == 31 / 32
    loopholes = {"empty_answers_rewarded", "answers_independent_of_prompt"}
    assert not loopholes & set(_findings(product))


def test_success_decides_what_an_answer_earned(tmp_path: Path) -> None:
    """Bonuses make every reward another; strict success is 1 for the empty answers as well."""
    parts = ("success", "bonus")
    rows = _shells(0.0)
    for number, row in enumerate(rows):
        values = (1.0, number / 100)
        row["reward"] = sum(values)
        pairs = zip(parts, values, strict=True)
        row["reward_components"] = [{"key": key, "value": value} for key, value in pairs]
    found = _findings(_analyze(rows, tmp_path))
    assert found["empty_answers_rewarded"].evidence["empty_at_best"] == 31


def test_reasoning_that_is_skipped(tmp_path: Path) -> None:
    """32 responses: 8 reason; 10 have no tags, 8 an empty span, 6 one that never closes."""
    kinds = ["<think>{} then up</think> up"] * 8 + ["up {}"] * 10
    kinds += ["<think> </think> up {}"] * 8 + ["<think>{} and so on"] * 6
    rows = [_row(f"p{number % 8}", kind.format(number), 0.5) for number, kind in enumerate(kinds)]
    product = _analyze(rows, tmp_path)
    counts = product.result.inputs.spans.counts
    assert counts == {"valid": 8, "missing": 10, "empty": 8, "unclosed": 6}
    assert next(iter(product.result.metrics)) == "valid_thinking_rate"
    assert _value(product, "valid_thinking_rate") == 0.25
    assert _findings(product)["format_collapse"].severity == "void"
    # An answer without reasoning is one; reasoning that never ends has none.
    assert product.result.metrics["empty_answer_rate"].n == 26


VECTORS = {
    "seven": [0.1] * 7,
    "judge": [0.6667] * 8,
    "rounded": [0.66666, 0.66667, 0.66667, 0.66666],
    "million": [1e6] * 4,
    "million and one": [1e6, 1e6 + 1, 1e6, 1e6],
}


@pytest.mark.parametrize(
    ("rtol", "varying"), [(1e-9, {"rounded", "million and one"}), (1e-4, set())]
)
def test_flat_within_a_tolerance_that_the_result_repeats(
    rtol: float, varying: set[str], tmp_path: Path
) -> None:
    rows = [
        _row(group, f"{group} {number}", reward)
        for group, rewards in VECTORS.items()
        for number, reward in enumerate(rewards)
    ]
    product = _analyze(rows, tmp_path, flat_atol=1e-9, flat_rtol=rtol)
    flat = product.groups.filter(pl.col("flat").is_null())["group_id"]
    assert set(flat) == varying
    settings = json.loads(product.result.to_json())["inputs"]["settings"]
    assert (settings["flat_atol"], settings["flat_rtol"]) == (1e-9, rtol)


@pytest.mark.parametrize(("size", "told"), [(2, True), (8, False)])
def test_small_groups_are_flat_by_chance(size: int, told: bool, tmp_path: Path) -> None:
    """Success at a rate of 0.18 whatever the prompt, 200 groups."""
    solved = np.random.default_rng(0).random((200, size)) < 0.18
    rows = [
        _row(f"p{group}", f"{group} {number}", float(solved[group, number]))
        for group in range(200)
        for number in range(size)
    ]
    product = _analyze(rows, tmp_path)
    flat = product.result.reward.flat_groups
    p = solved.mean()
    assert flat["flat_share_by_chance"] == pytest.approx(p**size + (1 - p) ** size)
    assert flat["flat_share"] == (solved.all(axis=1) | ~solved.any(axis=1)).mean()
    found = _findings(product)
    assert found["flat_groups"].severity == "note"
    excess = found["flat_groups"].evidence["excess_over_chance"]
    assert excess == pytest.approx(flat["flat_share"] - flat["flat_share_by_chance"])
    assert ("small_groups" in found) is told
    if told:
        assert flat["flat_share"] == pytest.approx(0.70, abs=0.05)


def test_several_policies_in_one_dump(tmp_path: Path) -> None:
    """58 rows of one version each, six that span an update; extra is JSON of any kind."""
    versions = [8] * 20 + [9] * 24 + [10] * 14
    extra = [json.dumps({"policy_version": version, "note": "x"}) for version in versions]
    extra += ['{"head_version": 8, "tail_version": 10}'] * 6
    rows = [_row(f"p{n // 8}", f"text {n}", float(n % 2), extra=e) for n, e in enumerate(extra)]
    found = _findings(_analyze(rows, tmp_path))["mixed_policy_versions"]
    assert found.severity == "warning"
    assert dict(found.evidence) == {
        "versions": 4,
        "rows_spanning_several": 6,
        "rows_with_a_version": 64,
        "rows_of_8": 20,
        "rows_of_8..10": 6,
        "rows_of_9": 24,
        "rows_of_10": 14,
    }


@pytest.mark.parametrize(
    "extra",
    [
        '{"head_version": -1, "tail_version": 4}',  # no head is no second version
        '{"weight_versions": ["4", 4, 4.0]}',
        '{"policy_version": 4, "other": [1, 2]}',
        '{"versions": {"torch": "2.4", "numpy": "2.1"}}',
        '{"model_version": true}',
        '{"policy_version": 4',
        None,
    ],
)
def test_one_policy_or_none_told(extra: str | None, tmp_path: Path) -> None:
    rows = [_row(f"p{n // 4}", f"text {n}", float(n % 2), extra=extra) for n in range(8)]
    assert "mixed_policy_versions" not in _findings(_analyze(rows, tmp_path))


def test_a_bonus_for_length_where_nothing_succeeds(tmp_path: Path) -> None:
    """Three groups fail and are paid 0.1 a word; the fourth solves half and is paid nothing."""
    rows = []
    for group in range(3):
        for words in range(1, 5):
            rows.append(_row(f"p{group}", "word " * words, words / 10, success=0.0))
    for number in range(4):
        rows.append(_row("p3", "word " * (4 - number), float(number < 2), success=number < 2))
    for row in rows:
        success = float(row.pop("success"))
        bonus = row["reward"] - success
        row["reward_components"] = [
            {"key": "success", "value": success},
            {"key": "bonus", "value": bonus},
        ]
    product = _analyze(rows, tmp_path)
    # Squares around the group means: 0.05 in each of three groups, 1 in the fourth.
    found = _findings(product)
    assert "phantom_variance" not in found  # 0.15 of 1.15 is 13 %
    # Ranks 1 1 1 and, in the fourth, 1.5 1.5 3.5 3.5 against 4 3 2 1: 4 / sqrt(4 * 5).
    correlation = _value(product, "reward_length_correlation")
    assert correlation == pytest.approx((3 + 4 / 20**0.5) / 4)
    # Without the solved group all variance is phantom, and it is length that is paid.
    (tmp_path / "failed").mkdir()
    product = _analyze(rows[:12], tmp_path / "failed")
    found = _findings(product)
    assert found["phantom_variance"].evidence["share_of_variance"] == 1.0
    assert found["phantom_variance"].evidence["groups_without_success"] == 3
    assert found["reward_follows_length"].evidence["reward_length_correlation"] == 1.0


def test_ids_that_are_unique_per_row(tmp_path: Path) -> None:
    rows = [
        {**_row(f"p{n // 4}", f"text {n}", float(n % 2)), "group_id": f"uid-{n}"} for n in range(16)
    ]
    product = _analyze(rows, tmp_path)
    assert product.result.counts.groups == 4
    assert product.result.reward.flat_groups["singleton"] == 0
    found = _findings(product)
    assert dict(found["dump_needs_attention"].evidence) == {"ids_unique_per_row": 16}
    assert found["dump_needs_attention"].severity == "warning"
    assert "dump_repaired" not in found


def test_ties_in_every_row_share_the_credit() -> None:
    """Four prompts that explain every response alike: chance, and not the first column."""
    logp_RP = np.full((8, 4), -50.0)
    metrics = measure(logp_RP, np.full(8, 5), np.repeat(np.arange(4), 2))
    values = {name: metrics[name].value for name in ("retrieval_accuracy", "retrieval_skill")}
    assert values == {"retrieval_accuracy": 0.25, "retrieval_skill": 0.0}
    assert metrics["mi_seq_estimate"].value == pytest.approx(0.0, abs=1e-12)
