"""The command line as a user meets it: streams, exit codes, one-line errors, no half results."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from conftest import SAMPLE_RUNS, sample_dump

RUN = "template_collapse"
DUMP = sample_dump(RUN, 0)


def ragen_diag(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ragen_diag", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


@pytest.fixture
def small_dump(tmp_path: Path) -> Path:
    """The first six prompts of a sample step: enough to score, quick to run."""
    folder = tmp_path / "run" / "rollouts"
    folder.mkdir(parents=True)
    (tmp_path / "run" / "checkpoints").symlink_to(SAMPLE_RUNS / RUN / "checkpoints")
    pl.read_parquet(DUMP).head(48).write_parquet(folder / "step_00000.parquet")
    return folder / "step_00000.parquet"


def test_analyze_writes_the_out_folder_and_prints_a_verdict(
    small_dump: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run = ragen_diag("analyze", small_dump, "--ckpt", "step_00000", "-o", out)
    assert run.returncode == 0, run.stderr
    assert "diverse reasoning" in run.stdout.lower()
    lines = run.stdout.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert "step_00000" in run.stderr  # which checkpoint was taken
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert written >= {
        "result.json",
        "report.html",
        "summary.md",
        "prompts.parquet",
        "responses.parquet",
        "scores.parquet",
        "plots/quadrant.svg",
    }
    responses = pl.read_parquet(out / "responses.parquet")
    assert responses.columns[:2] == ["response_id", "sample_id"]
    scores = pl.read_parquet(out / "scores.parquet")
    assert scores.columns == ["response_id", "own", "n_tokens", "logp", "own_token_logp"]
    prompts = pl.read_parquet(out / "prompts.parquet")
    assert prompts["column"].to_list() == list(range(6))
    assert scores["logp"].list.len().unique().to_list() == [6]


def test_json_is_one_document_that_fits_the_printed_schema(
    small_dump: Path, tmp_path: Path
) -> None:
    run = ragen_diag("analyze", small_dump, "--ckpt", "step_00000", "--json", "-o", tmp_path / "o")
    result = json.loads(run.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    schema = json.loads(ragen_diag("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(result, schema, cls=jsonschema.Draft202012Validator)
    assert (tmp_path / "o" / "result.json").read_text("utf-8") == run.stdout


def test_equal_inputs_give_equal_bytes_apart_from_the_run(small_dump: Path, tmp_path: Path) -> None:
    documents = []
    for name in ("a", "b"):
        run = ragen_diag(
            "analyze", small_dump, "--ckpt", "step_00000", "--json", "-o", tmp_path / name
        )
        documents.append({k: v for k, v in json.loads(run.stdout).items() if k != "run"})
    assert json.dumps(documents[0]) == json.dumps(documents[1])
    for name in ("responses.parquet", "scores.parquet", "plots/quadrant.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_without_a_checkpoint_the_reward_side_is_measured(small_dump: Path, tmp_path: Path) -> None:
    run = ragen_diag("analyze", small_dump, "--json", "-o", tmp_path / "o")
    result = json.loads(run.stdout)
    assert run.returncode == 0
    assert result["regime"]["label"] == "not_judged"
    assert result["inputs"]["checkpoint"] is None
    assert result["reward"]["mean"] is not None
    assert not (tmp_path / "o" / "scores.parquet").exists()


def test_dumps_of_other_trainers_give_the_same_verdict(tmp_path: Path) -> None:
    """The same rows as TRL and as verl write them, without ids: encoded again, judged alike."""
    table = pl.read_parquet(DUMP).head(64)
    folder = tmp_path / "completions"
    folder.mkdir()
    table.select(
        pl.lit(0).cast(pl.Int64).alias("step"),
        "prompt",
        pl.col("response").alias("completion"),
        pl.col("reward").alias("grid_reward"),
    ).write_parquet(folder / "completions_00000.parquet")
    verl = tmp_path / "verl"
    verl.mkdir()
    table.select(
        pl.col("prompt").alias("input"),
        pl.col("response").alias("output"),
        pl.col("ground_truth").alias("gts"),
        pl.col("reward").alias("score"),
        pl.lit(0).alias("step"),
    ).write_ndjson(verl / "0.jsonl")
    (tmp_path / "own").mkdir()
    table.write_parquet(tmp_path / "own" / "step_00000.parquet")
    results = {}
    for name in ("completions", "verl", "own"):
        ckpt = SAMPLE_RUNS / RUN / "checkpoints" / "step_00000"
        run = ragen_diag(
            "analyze", tmp_path / name, "--ckpt", ckpt, "--json", "-o", tmp_path / "out" / name
        )
        assert run.returncode == 0, run.stderr
        results[name] = json.loads(run.stdout)
    assert [results[name]["inputs"]["dump"]["dialect"] for name in results] == [
        "trl",
        "verl",
        "canonical",
    ]
    sources = [list(results[name]["inputs"]["dump"]["group_source"]) for name in results]
    assert sources == [["contiguous"], ["derived_key"], ["explicit"]]
    for name in ("completions", "verl"):
        assert results[name]["regime"]["label"] == "diverse_reasoning"
        assert results[name]["inputs"]["scoring"]["retokenised"] == 64
        for metric in ("mi_seq_estimate", "retrieval_accuracy", "conditional_entropy_est"):
            ours, theirs = results["own"]["metrics"][metric], results[name]["metrics"][metric]
            assert theirs["value"] == pytest.approx(ours["value"], abs=1e-4)
        assert "retokenised" in {finding["code"] for finding in results[name]["findings"]}


def test_a_folder_of_steps_takes_the_checkpoints_step(tmp_path: Path) -> None:
    run = ragen_diag("analyze", SAMPLE_RUNS / RUN / "rollouts", "-o", tmp_path / "o")
    assert run.returncode == 2
    assert "--step" in run.stderr
    assert not (tmp_path / "o").exists()
    run = ragen_diag(
        "analyze", SAMPLE_RUNS / RUN / "rollouts", "--step", "10", "--json", "-o", tmp_path / "o"
    )
    assert json.loads(run.stdout)["inputs"]["dump"]["step"] == 10


def _write(path: Path, table: pl.DataFrame) -> Path:
    table.write_parquet(path)
    return path


def _no_such_file(tmp: Path) -> Path:
    return tmp / "none.parquet"


def _empty_file(tmp: Path) -> Path:
    (tmp / "empty.jsonl").touch()
    return tmp / "empty.jsonl"


def _no_response(tmp: Path) -> Path:
    return _write(tmp / "d.parquet", pl.DataFrame({"prompt": ["a"], "reward": [1.0]}))


def _no_reward(tmp: Path) -> Path:
    table = pl.DataFrame({"prompt": ["a"], "response": ["b"], "quality": [1.0]})
    return _write(tmp / "d.parquet", table)


def _one_prompt(tmp: Path) -> Path:
    return _write(tmp / "d.parquet", pl.read_parquet(DUMP).head(8))


def _nothing_scorable(tmp: Path) -> Path:
    table = pl.read_parquet(DUMP).head(64).select("prompt", "reward")
    return _write(tmp / "d.parquet", table.with_columns(response=pl.lit("")))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_no_such_file, ["none.parquet"]),
        (_empty_file, ["empty.jsonl", "empty"]),
        (_no_response, ["d.parquet", "response"]),
        (_no_reward, ["d.parquet", "reward", "--reward quality"]),
        (_one_prompt, ["d.parquet", "1 distinct prompt", "at least 2"]),
        (_nothing_scorable, ["d.parquet", "no response can be scored", "empty_response 64"]),
    ],
)
def test_bad_dumps_are_refused_in_one_line(
    make: Callable[[Path], Path], told: list[str], tmp_path: Path
) -> None:
    ckpt = SAMPLE_RUNS / RUN / "checkpoints" / "step_00000"
    run = ragen_diag("analyze", make(tmp_path), "--ckpt", ckpt, "-q", "-o", tmp_path / "o")
    _assert_refused(run, told, tmp_path / "o")


def test_a_checkpoint_without_weights_is_refused_with_the_merge_command(tmp_path: Path) -> None:
    hugging = tmp_path / "global_step_400" / "actor" / "huggingface"
    hugging.mkdir(parents=True)
    source = SAMPLE_RUNS / RUN / "checkpoints" / "step_00000"
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (hugging / name).write_bytes((source / name).read_bytes())
    run = ragen_diag("analyze", DUMP, "--ckpt", hugging, "-q", "-o", tmp_path / "o")
    _assert_refused(run, ["verl.model_merger merge --backend fsdp", "actor"], tmp_path / "o")


def test_a_missing_tokenizer_is_refused(tmp_path: Path) -> None:
    source = SAMPLE_RUNS / RUN / "checkpoints" / "step_00000"
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    run = ragen_diag("analyze", DUMP, "--ckpt", tmp_path, "-q", "-o", tmp_path / "o")
    _assert_refused(run, ["tokenizer", "--tokenizer"], tmp_path / "o")


def _assert_refused(run: subprocess.CompletedProcess[str], told: list[str], out: Path) -> None:
    assert run.returncode == 2, run.stderr
    assert run.stdout == ""
    assert run.stderr.startswith("error: ")
    assert run.stderr.count("\n") == 1, run.stderr
    for text in told:
        assert text in run.stderr
    assert not out.exists()


def test_rows_that_cannot_be_scored_are_counted_by_reason(tmp_path: Path) -> None:
    """Null and NaN rewards, an empty response, no tags, and one beyond the context of 128."""
    table = pl.read_parquet(DUMP).select("prompt", "response", "reward").head(64)
    response, reward = table["response"].to_list(), table["reward"].to_list()
    reward[0], reward[1] = None, float("nan")
    response[2], response[3] = "", "left left"
    response[4] = "<think> " + "left " * 200 + "</think> <answer> up </answer>"
    table = table.with_columns(
        pl.Series("response", response), pl.Series("reward", reward, dtype=pl.Float64)
    )
    ckpt = SAMPLE_RUNS / RUN / "checkpoints" / "step_00000"
    run = ragen_diag(
        "analyze",
        _write(tmp_path / "d.parquet", table),
        "--ckpt",
        ckpt,
        "--json",
        "-q",
        "-o",
        tmp_path / "o",
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["counts"]["excluded"] == {
        "empty_response": 1,
        "no_reasoning_span": 1,
        "too_long": 1,
    }
    assert result["counts"]["scored_rows"] == 61
    assert result["inputs"]["spans"]["counts"]["missing"] == 2
    finding = {finding["code"]: finding for finding in result["findings"]}
    assert finding["missing_rewards"]["evidence"]["missing"] == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--nonsense"], 2),
        (["analyze"], 2),
        (["analyze", str(DUMP), "--dtype", "float8"], 2),
        (["analyze", str(DUMP), "--reasoning-tags", "<think>"], 2),
        (["analyze", str(DUMP), "--temperature", "inf"], 2),
        (["analyze", str(DUMP), "--limit", "1"], 2),
        (["analyze", str(DUMP), "--baseline", str(DUMP)], 2),
        (["analyze", str(DUMP), "--out", str(DUMP)], 2),
        (["nonsense"], 2),
        (["--version"], 0),
        (["-h"], 0),
        (["analyze", "-h"], 0),
        (["schema"], 0),
    ],
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    run = ragen_diag(*arguments)
    assert run.returncode == code, run.stderr
    if code:
        assert run.stderr.splitlines()[-1].startswith("error: ")
        assert run.stderr.count("error: ") == 1


def test_a_crash_is_one_line_and_exit_2(tmp_path: Path) -> None:
    code = (
        "import sys, ragen_diag.pipeline as p\n"
        "def broken(*a, **k): raise RuntimeError('[red]boom[/think]\\x1b[31m')\n"
        "p.analyze = broken\n"
        f"sys.argv = ['ragen-diag', 'analyze', {str(DUMP)!r}]\n"
        "from ragen_diag.cli import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr.startswith("error: internal error: RuntimeError: [red]boom[/think]")
    assert "\x1b" not in run.stderr
    assert run.stderr.count("\n") == 1


def test_streams_that_cannot_encode_are_no_reason_to_fail(small_dump: Path, tmp_path: Path) -> None:
    for encoding in ("cp1252", "ascii"):
        run = subprocess.run(
            [sys.executable, "-m", "ragen_diag", "analyze", small_dump, "-o", tmp_path / encoding],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )
        assert run.returncode == 0, run.stderr
        run.stdout.decode(encoding)


@pytest.mark.parametrize("command", ["schema", "analyze DUMP -o OUT", "analyze DUMP --json -o OUT"])
def test_a_reader_that_stops_is_no_failure(command: str, small_dump: Path, tmp_path: Path) -> None:
    words = command.replace("DUMP", str(small_dump)).replace("OUT", str(tmp_path / "o")).split()
    run = subprocess.Popen(
        [sys.executable, "-m", "ragen_diag", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None and run.stderr is not None
    run.stdout.close()
    said = run.stderr.read().decode()
    run.stderr.close()
    assert run.wait() == 0, said
    assert "error" not in said


def test_other_inputs_are_refused_before_anything_is_scored(
    small_dump: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o"
    assert ragen_diag("analyze", small_dump, "-o", out).returncode == 0
    run = ragen_diag("analyze", small_dump, "--ckpt", "step_00000", "-o", out)
    assert run.returncode == 2
    assert "other inputs" in run.stderr
    assert "scoring" not in run.stderr


def test_results_of_other_inputs_are_not_overwritten_unasked(
    small_dump: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o"
    assert ragen_diag("analyze", small_dump, "-o", out).returncode == 0
    assert ragen_diag("analyze", small_dump, "-o", out).returncode == 0
    before = (out / "result.json").read_bytes()
    run = ragen_diag("analyze", DUMP, "-q", "-o", out)
    assert run.returncode == 2
    assert "--force" in run.stderr
    assert (out / "result.json").read_bytes() == before
    assert ragen_diag("analyze", DUMP, "-q", "--force", "-o", out).returncode == 0
