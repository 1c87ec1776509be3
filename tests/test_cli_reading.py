"""Options that say how a dump is to be read, and `convert`, as a user meets them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ragen_diag.dumps import read_dump

HOSTILE = "\x1b[2J[red]::error::x\u202e<script>alert(1)</script>"


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


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows(steps: range, tag: str = "x") -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "question": f"{prompt}?",
            "text": f"{tag} {prompt} {answer}",
            "quality": {"total": answer, "style": 0.5},
        }
        for step in steps
        for prompt in range(4)
        for answer in range(2)
    ]


NAMES = ("--map", "prompt=question", "--map", "response=text", "--reward", "quality")


def analyzed(path: Path, *options: str, **environment: str) -> dict[str, Any]:
    run = ragen_diag(
        "analyze",
        path,
        *options,
        "--json",
        "-q",
        "-o",
        path.parent / "out",
        "--force",
        **environment,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_a_home_grown_dump_is_mapped(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", rows(range(1)))
    unknown = ragen_diag("analyze", path)
    assert unknown.returncode == 2
    assert "no known dialect; found columns step, question, text, quality" in unknown.stderr
    assert "--map response=output" in unknown.stderr
    unclear = ragen_diag("analyze", path, *NAMES)
    assert unclear.returncode == 2
    assert "keys total, style; say which is the reward with --reward-key" in unclear.stderr
    result = analyzed(path, *NAMES, "--reward-key", "total")
    assert result["reward"]["mean"] == 0.5
    assert result["inputs"]["dump"]["dialect"] == "canonical"
    assert result["inputs"]["settings"]["reading"]["names"] == {
        "prompt": "question",
        "response": "text",
    }
    weighed = analyzed(path, *NAMES[:4], "--reward", "step=2", "--reward", "step=-0.5")
    assert weighed["reward"]["mean"] == 0.0
    without = analyzed(path, *NAMES[:4], "--reward", "none")
    assert without["reward"]["mean"] is None
    assert without["reward"]["reason"] == "no finite reward"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--map", "response"), "--map 'response': give NAME=COLUMN"),
        (("--reward", "a=b"), "--reward 'a=b': 'b' is no weight"),
        (("--max-bad-rows", "200%"), "--max-bad-rows '200%': give a share"),
        (("--dialect", "verel"), "--dialect verel: there is none; known: canonical, verl,"),
        (("--scope", "turn_x"), "--scope"),
        (("--split", "eval"), "no rows of split 'eval'; splits: none"),
    ],
)
def test_wrong_words_are_one_line(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [{"prompt": "p", "response": "r", "reward": 1}])
    run = ragen_diag("analyze", path, *options)
    assert run.returncode == 2
    assert message in run.stderr
    assert run.stderr.count("\n") == 1


def test_a_resumed_run_stops_a_pipeline_and_warns_a_person(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [*rows(range(10)), *rows(range(7, 12), "y")])
    options = (*NAMES, "--reward-key", "total", "--step", "8")
    stopped = ragen_diag("analyze", path, *options, CI="true")
    assert stopped.returncode == 2
    assert "step 7 was written twice" in stopped.stderr
    warned = analyzed(path, *options)
    assert warned["counts"]["rows"] == 8
    assert warned["inputs"]["dump"]["notes"]["step_written_twice"] == 24
    codes = {finding["code"]: finding["severity"] for finding in warned["findings"]}
    assert codes["dump_needs_attention"] == "warning"


def test_convert_from_the_shell(tmp_path: Path) -> None:
    path = write(
        tmp_path / "5.jsonl",
        [{"input": HOSTILE, "output": HOSTILE + str(i), "score": i % 2} for i in range(8)],
    )
    out = tmp_path / "out.parquet"
    run = ragen_diag("convert", path, out)
    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr == f"{out}: 8 rows, read as verl\n"
    assert read_dump([out]).table.equals(read_dump([path]).table)
    assert pl.read_parquet(out)["prompt"].unique().to_list() == [HOSTILE]
    again = ragen_diag("convert", path, out)
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert ragen_diag("convert", path, out, "--force", "-q").stderr == ""


def test_hostile_names_and_values_in_errors_are_inert(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{HOSTILE: 1, "prompt": "p"}])
    run = ragen_diag("convert", path, tmp_path / "out.parquet", GITHUB_ACTIONS="true")
    assert run.returncode == 2
    assert "\x1b" not in run.stderr
    assert "\u202e" not in run.stderr
    assert not any(line.lstrip().startswith("::") for line in run.stderr.splitlines())
