"""What practitioners find in their folders, read and analysed as it lies there.

Every dump is made up, and small enough to work out by hand what is right.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import SAMPLE_RUNS, analyzed, sample_dump

from ragen_diag.dumps import read_dump
from ragen_diag.dumps.convert import convert
from ragen_diag.errors import DumpError
from ragen_diag.judging.findings import Finding
from ragen_diag.metrics.components import component_ranges, variance_kept
from ragen_diag.pipeline import analyze
from ragen_diag.report.folder import write_folder
from ragen_diag.report.product import Product
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import Reading

Row = dict[str, Any]


def lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    return path


def row(number: int, *, size: int = 4, **columns: Any) -> Row:
    """The row of a dump whose prompts have `size` responses each, half of them solved."""
    plain = {
        "prompt": f"p{number // size}",
        "response": f"r{number}",
        "reward": float(number % 2),
    }
    return {**plain, **columns}


def sizes(rollouts: Rollouts) -> list[int]:
    parts = rollouts.table.partition_by("step", "group_id", maintain_order=True)
    return [part.height for part in parts]


def findings(product: Product) -> dict[str, Finding]:
    return {finding.code: finding for finding in product.result.findings}


def attention(product: Product) -> Mapping[str, Any]:
    found = findings(product).get("dump_needs_attention")
    assert found is None or found.severity == "warning"
    return {} if found is None else dict(found.evidence)


# Ids, groups and splits under the names that trainers give them


def test_a_uid_of_its_own_on_every_row(tmp_path: Path) -> None:
    rows = [row(n, uid=f"u{n}") for n in range(16)]
    product = analyze(table(tmp_path / "step_1.parquet", rows))
    assert product.result.counts.groups == 4
    assert attention(product) == {"ids_unique_per_row": 16}
    assert product.result.inputs.dump.group_source == {"prompt_text": 16}


def test_one_uid_over_different_prompts(tmp_path: Path) -> None:
    rows = [row(n, prompt=f"p{n}", uid=f"u{n // 4}") for n in range(16)]
    with pytest.raises(
        DumpError, match=r"group_id 'u0' has several prompts, in row 1 and in row 2"
    ):
        read_dump([table(tmp_path / "step_1.parquet", rows)])


def test_two_tasks_with_one_prompt_stay_apart_by_their_uid(tmp_path: Path) -> None:
    rows = [row(n, prompt="same", uid=n // 4) for n in range(8)]
    product = analyze(lines(tmp_path / "1.jsonl", rows))
    assert (product.result.counts.groups, product.result.counts.prompts) == (2, 1)


def test_of_two_columns_that_could_be_the_group_none_is_guessed(tmp_path: Path) -> None:
    path = lines(tmp_path / "1.jsonl", [row(n, uid=n // 4, task_id="t") for n in range(8)])
    with pytest.raises(DumpError, match="columns uid and task_id can each be the group_id"):
        read_dump([path])
    mapped = read_dump([path], reading=Reading(names={"group_id": "uid"}))
    assert mapped.table["group_id"].unique().sort().to_list() == ["0", "1"]


def test_steps_in_one_file_under_another_name(tmp_path: Path) -> None:
    path = lines(tmp_path / "log.jsonl", [row(n, global_step=n // 8) for n in range(24)])
    assert read_dump([path]).steps == [0, 1, 2]


@pytest.mark.parametrize("answer", ["response", "completion"])
def test_a_mode_column_keeps_evaluation_out(answer: str, tmp_path: Path) -> None:
    rows = [row(n, mode="eval" if n < 4 else "train") for n in range(12)]
    for each in rows:
        each[answer] = each.pop("response")
    path = table(tmp_path / "completions_00010.parquet", rows)
    with pytest.raises(DumpError, match=r"several splits \(train 8, eval 4\)"):
        analyze(path)
    assert read_dump([path], reading=Reading(split="train")).table.height == 8


def test_numbers_of_tokens_are_no_tokens(tmp_path: Path) -> None:
    rollouts = read_dump([lines(tmp_path / "1.jsonl", [row(n, response_tokens=7) for n in (0, 1)])])
    assert rollouts.notes == {}
    assert rollouts.table["response_ids"].null_count() == 2


@pytest.mark.parametrize("given", [[1, 1.0, "1"], [1.0, "1"], ["1", 1.0]])
def test_whole_floats_are_the_integers_they_were(given: list[Any], tmp_path: Path) -> None:
    rows = [row(0, response=str(n), group_id=value) for n, value in enumerate(given)]
    assert sizes(read_dump([lines(tmp_path / "1.jsonl", rows)])) == [len(given)]
    text = "".join(f"p,{n},{n},{value}\n" for n, value in enumerate(given))
    (tmp_path / "1.csv").write_text("prompt,response,reward,group_id\n" + text)
    assert sizes(read_dump([tmp_path / "1.csv"])) == [len(given)]


def test_ids_that_a_float_cannot_hold_are_a_warning(tmp_path: Path) -> None:
    rows = [row(n, group_id=float(2**53 + 2 * (n // 4))) for n in range(8)]
    product = analyze(table(tmp_path / "step_1.parquet", rows))
    assert attention(product)["imprecise_id"] == 8


# Rewards


def test_the_reward_changes_its_name_and_type_between_steps(tmp_path: Path) -> None:
    renamed = [{**row(n), "score": n % 2} for n in range(8)]
    for each in renamed:
        del each["reward"]
    table(
        tmp_path / "step_1.parquet", [{**each, "score": float(each["score"])} for each in renamed]
    )
    table(tmp_path / "step_2.parquet", [{**each, "acc": True} for each in renamed])
    table(tmp_path / "step_3.parquet", [row(n) for n in range(8)])
    table(tmp_path / "step_4.parquet", [row(n, reward=n % 2) for n in range(8)])
    table(tmp_path / "step_5.parquet", [row(n, reward=None) for n in range(8)])
    rollouts = read_dump([tmp_path])
    means = rollouts.table.group_by("step").agg(pl.col("reward").mean()).sort("step")
    assert means["reward"].to_list() == [0.5, 0.5, 0.5, 0.5, None]
    assert rollouts.notes == {"null_reward": 8, "reward_named_score": 16}
    backwards = read_dump([tmp_path / f"step_{n}.parquet" for n in (5, 4, 3, 2, 1)])
    order = ["step", "sample_id"]
    assert backwards.table.sort(order).equals(rollouts.table.sort(order))
    told = findings(analyze(tmp_path / "step_1.parquet"))["dump_repaired"]
    assert told.message.endswith("reward named score (8).")
    asked = read_dump([tmp_path / "step_2.parquet"], reading=Reading(rewards=(("acc", 1.0),)))
    assert asked.notes == {}


def test_a_step_without_the_column_that_the_others_have(tmp_path: Path) -> None:
    lines(tmp_path / "1.jsonl", [row(n) for n in range(4)])
    other = [{"prompt": "p", "response": "r", "my_reward_v2": 1.0}]
    lines(tmp_path / "2.jsonl", other)
    product = analyze(tmp_path / "1.jsonl")
    assert attention(product) == {}
    rollouts = read_dump([tmp_path])
    assert rollouts.notes == {"no_reward_column": 1, "null_reward": 1}
    lines(tmp_path / "3.jsonl", [{**other[0], "score": 1.0, "rewards": 0.0}])
    with pytest.raises(DumpError, match=r"no reward column; found .*score, rewards"):
        read_dump([tmp_path / "3.jsonl"])


def test_text_that_comes_after_thousands_of_nulls(tmp_path: Path) -> None:
    rows = [row(0, ground_truth=None if n < 5000 else "text") for n in range(5001)]
    truths = read_dump([lines(tmp_path / "1.jsonl", rows)]).table["ground_truth"]
    assert (truths.null_count(), truths[-1]) == (5000, "text")


def test_one_nan_does_not_spread_over_its_group(tmp_path: Path) -> None:
    values = {"nan": [1.0, float("nan"), 0.0], "null": [1.0, None, 0.0]}
    rows = [row(0, group_id=g, prompt=g, reward=v) for g, vs in values.items() for v in vs]
    product = analyze(table(tmp_path / "step_1.parquet", rows))
    told = product.groups.select("n", "reward_mean", "reward_var").rows()
    assert told == [(2, 0.5, 0.5), (2, 0.5, 0.5)]
    assert findings(product)["missing_rewards"].evidence["missing"] == 2


def test_rewards_that_differ_although_the_text_is_one(tmp_path: Path) -> None:
    product = analyze(table(tmp_path / "step_1.parquet", [row(n, response="x") for n in range(4)]))
    assert product.result.reward.flat_groups["flat"] == 0
    few = findings(product)["few_distinct_texts"].evidence
    assert few["distinct_ratio_in_groups"] == 1 / 4
    assert few["in_group_reward_var"] == pytest.approx(1 / 3)


def test_components_that_few_rows_have_are_listed_and_not_judged(tmp_path: Path) -> None:
    """Ten tools with a score on one row each, and a format score on all but one of twenty."""
    tools = [f"tool_{n}" for n in range(10)]
    rows = [
        row(n, reward={"score": n % 2, "format": None if n == 3 else 0.5, tools[n // 2]: 1.0})
        if n % 2
        else row(n, reward={"score": 0, "format": 0.5})
        for n in range(20)
    ]
    found = findings(analyze(lines(tmp_path / "1.jsonl", rows)))
    sparse = found["sparse_reward_components"]
    assert (sparse.severity, sparse.evidence["components"], sparse.evidence["tool_0"]) == (
        "note",
        10,
        1,
    )
    assert sparse.message.endswith("tool_5 (1 rows) and 4 more.")
    assert dict(found["constant_reward_component"].evidence) == {"format": 0.5}


def test_rare_components_do_not_speak_for_all() -> None:
    nan = float("nan")
    parts = {"bonus": pl.Series([1.0, 0.0, nan, nan, nan]), "cost": pl.Series([-1.0, 0.0, 0, 0, 0])}
    values = {name: part.to_numpy() for name, part in parts.items()}
    ranges = component_ranges(values)
    assert {name: part.sparse for name, part in ranges.items()} == {"bonus": True, "cost": False}
    reward = pl.Series([0.0, 0.0, 0.0, 0.0, 0.0]).to_numpy()
    assert variance_kept(reward, values, ["a"] * 5) is None
    assert variance_kept(reward[:2], {k: v[:2] for k, v in values.items()}, ["a"] * 2) == 0.0


# Responses and how they end


def test_all_at_the_cap_without_finish_reasons(tmp_path: Path) -> None:
    """Lengths alone tell: 15 of 16 responses have 256 tokens, one has 40."""
    rows = [
        row(n, reward=0.0, prompt_ids=[1, 2], response_ids=[n] * (40 if n == 0 else 256))
        for n in range(16)
    ]
    found = findings(analyze(table(tmp_path / "step_1.parquet", rows)))["truncated"]
    assert (found.severity, found.evidence["truncated_share"]) == ("void", 15 / 16)
    assert found.evidence["flat_groups_all_truncated"] == 3


def test_random_code_points_are_no_diversity(tmp_path: Path) -> None:
    """Seen without any model: 64 responses of 300 characters drawn from five scripts."""
    scripts = ((0x41, 0x5B), (0x410, 0x450), (0x4E00, 0x9FA6), (0x621, 0x64B), (0x905, 0x93A))
    rng = random.Random(0)
    rows = [
        row(n, response="".join(chr(rng.randrange(*rng.choice(scripts))) for _ in range(300)))
        for n in range(64)
    ]
    found = findings(analyze(table(tmp_path / "step_1.parquet", rows)))
    assert found["garbled_text"].severity == "void"


def test_versions_of_the_policy_as_numbers_and_as_spans_in_one_column(tmp_path: Path) -> None:
    versions: list[Any] = [8] * 20 + [9] * 24 + [10] * 14 + [[8, 10]] * 6
    rows = [row(n, policy_version=version) for n, version in enumerate(versions)]
    found = findings(analyze(lines(tmp_path / "10.jsonl", rows)))["mixed_policy_versions"]
    assert found.evidence["rows_spanning_several"] == 6
    assert [found.evidence[f"rows_of_{name}"] for name in ("8", "8..10", "9", "10")] == [
        20,
        6,
        24,
        14,
    ]


def test_where_no_version_is_told_the_assumption_is_printed(tmp_path: Path) -> None:
    write_folder(analyzed("healthy", 120), tmp_path / "out", force=False, plot_format="svg")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "only if the checkpoint is the policy that sampled" in page


@pytest.mark.parametrize(
    ("drift", "severity"), [(0.0, None), (0.01, None), (0.05, "warning"), (0.5, "void")]
)
def test_log_probs_of_the_rollout_drift_from_ours(
    drift: float, severity: str | None, tmp_path: Path
) -> None:
    """The dumped values lie `drift` above ours on every token, in the trainers' column."""
    sample = pl.read_parquet(sample_dump("healthy", 120))
    groups = sample["group_id"].unique(maintain_order=True).head(4)
    rows = sample.filter(pl.col("group_id").is_in(groups.implode()))
    drifted = pl.col("rollout_logprobs").list.eval(pl.element() + drift)
    path = tmp_path / "step_00120.parquet"
    rows.with_columns(rollout_log_probs=drifted).drop("rollout_logprobs").write_parquet(path)
    product = analyze(path, str(SAMPLE_RUNS / "healthy" / "checkpoints" / "step_00120"))
    gap = product.result.metrics["rollout_logprob_gap"]
    assert gap.value == pytest.approx(-drift, abs=1e-5)
    found = findings(product).get("scorer_mismatch")
    assert (None if found is None else found.severity) == severity
    if found is not None:
        assert found.evidence["p99_absolute_gap"] == pytest.approx(drift, abs=1e-5)


# Texts


CHAT = [{"role": "user", "content": "hi"}]
FORMS: list[Any] = [
    "hi",
    CHAT,
    [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    json.dumps(CHAT),
]


def test_one_prompt_in_every_form_is_one_group(tmp_path: Path) -> None:
    rows = [row(n, prompt=form) for n, form in enumerate(FORMS)]
    rollouts = read_dump([lines(tmp_path / "mixed.jsonl", rows)])
    assert sizes(rollouts) == [4]
    assert rollouts.table["messages"].to_list() == [CHAT] * 4
    assert rollouts.notes == {"text_as_user_message": 1}
    for number, form in enumerate(FORMS[1:]):
        lines(tmp_path / "apart" / f"part-{number}.jsonl", [row(number, prompt=form)])
    assert sizes(read_dump([tmp_path / "apart"])) == [3]


def test_what_is_written_is_utf8_whatever_was_read(tmp_path: Path) -> None:
    escapes = [r"x\udcb2y", r"\ud83c\udf78", r"\ud83cz"]
    text = "".join(
        f'{{"prompt":"p{n % 2}\\ud800","response":"{escape}","reward":{n % 2}}}\n'
        for n, escape in enumerate(escapes)
    )
    path = tmp_path / "1.jsonl"
    path.write_bytes(text.encode() + b'{"prompt":"p","response":"a\xffb","reward":0}\n')
    product = analyze(path)
    write_folder(product, tmp_path / "out", force=False, plot_format="svg")
    written = [file for file in (tmp_path / "out").rglob("*") if file.suffix != ".parquet"]
    texts = [file.read_bytes().decode("utf-8") for file in written if file.is_file()]
    assert len(texts) > 3
    assert product.prompts["prompt"].to_list()[0] == "p0\ufffd"
    # Two prompts that differ in the broken character alone would be one.
    assert attention(product) == {"repaired_prompt": 3}


def test_who_allows_no_bad_row_allows_no_torn_one(tmp_path: Path) -> None:
    path = lines(tmp_path / "1.jsonl", [row(n) for n in range(4)])
    with path.open("a") as file:
        file.write('{"prompt":"a')
    assert read_dump([path]).notes == {"torn_line": 1}
    with pytest.raises(DumpError, match="1 of 5 lines hold no JSON object; the first, line 5"):
        read_dump([path], reading=Reading(max_bad_share=0.0))


def test_converted_texts_have_room_for_more_than_two_gib(tmp_path: Path) -> None:
    """Offsets of 64 bits: those of 32 overflow where chunks of text are joined."""
    out = tmp_path / "out.parquet"
    convert([lines(tmp_path / "1.jsonl", [row(0)])], out)
    schema = pq.read_schema(out)
    assert {schema.field(name).type for name in ("prompt", "response")} == {pa.large_string()}


# Turns and resumed runs


def test_turns_that_name_no_trajectory_are_no_silent_failures(tmp_path: Path) -> None:
    """The reward stands on the last turn, and nothing says whose turn that is."""
    rows = [
        row(n, prompt=f"{n % 2}", turn=n % 2, reward=float(n % 2), group_id="g") for n in (0, 1)
    ]
    rows += [row(2, prompt="0", turn=0, group_id="g")]
    product = analyze(lines(tmp_path / "1.jsonl", rows))
    assert product.result.counts.rows == 2
    assert attention(product) == {"turns_of_no_trajectory": 1}


def test_trajectories_without_numbers_of_turns_are_told(tmp_path: Path) -> None:
    rows = [row(n, prompt="p" * (n % 2 + 1), traj_uid=n // 2) for n in range(4)]
    assert attention(analyze(lines(tmp_path / "1.jsonl", rows)))["rows_of_no_turn"] == 4


def written(step: int, tag: str, prompts: str = "") -> list[Row]:
    return [row(n, step=step, prompt=f"{prompts}{n // 4}", response=f"{tag}{n}") for n in range(8)]


def tags(path: Path) -> dict[int, str]:
    """Step -> whose rows it has, when of a step that was written twice the last is taken."""
    rollouts = read_dump([path], reading=Reading(on_duplicate_step="last"))
    tag = pl.col("response").str.slice(0, 1).unique().sort().str.join()
    return dict(rollouts.table.group_by("step").agg(tag).rows())


RESUMED = {step: "o" if step < 8 else "n" for step in range(1, 16)}


def test_a_resumed_run_that_draws_other_prompts_is_not_merged(tmp_path: Path) -> None:
    old = [each for step in range(1, 11) for each in written(step, "o")]
    new = [each for step in range(8, 16) for each in written(step, "n", "other ")]
    path = lines(tmp_path / "one" / "log.jsonl", [*old, *new])
    with pytest.raises(DumpError, match=r"step 8 was written twice in .*log\.jsonl \(8 and 8 rows"):
        read_dump([path])
    assert tags(path) == RESUMED
    for step in range(1, 11):
        lines(tmp_path / "two" / "a" / f"{step}.jsonl", written(step, "o"))
    for step in range(8, 16):
        lines(tmp_path / "two" / "b" / f"{step}.jsonl", written(step, "n", "other "))
    assert tags(tmp_path / "two") == RESUMED


def test_shards_and_late_rows_are_no_resumed_run(tmp_path: Path) -> None:
    shards = [written(step, str(rank), f"{rank} ") for rank in range(2) for step in range(1, 9)]
    path = lines(tmp_path / "cat.jsonl", [each for shard in shards for each in shard])
    assert tags(path) == dict.fromkeys(range(1, 9), "01")
    for number, shard in enumerate(shards):
        lines(tmp_path / "ranks" / f"rank{number // 8}" / f"{number % 8 + 1}.jsonl", shard)
    assert tags(tmp_path / "ranks") == dict.fromkeys(range(1, 9), "01")
    in_time = [each for step in range(1, 7) for each in written(step, "o")]
    late = [{**row(0, step=5, prompt="late"), "response": "late"}]
    rest = [each for step in range(7, 13) for each in written(step, "o")]
    path = lines(tmp_path / "late.jsonl", [*in_time, *late, *rest])
    assert tags(path) == {step: "lo" if step == 5 else "o" for step in range(1, 13)}
