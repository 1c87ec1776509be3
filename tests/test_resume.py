"""A run that was stopped goes on where it was, and ends as if it had not been stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SAMPLE_RUNS
from scoring_cases import Policy, Rows, rows, tiny

from ragen_diag.errors import UsageError
from ragen_diag.scoring import Progress, Resume, score


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_killed_twenty_times(tmp_path: Path) -> None:
    script = Path(__file__).parent / "killed_runs.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, "0"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["equal"]
    # Nothing was scored twice; what is kept but not told was killed between the two.
    assert told["written"] == told["distinct"] <= told["kept"]
    assert told["kills"] == 20
    # The kills fell into the work, and not before or after it.
    assert told["moments"] > 5


def test_other_inputs_start_anew(tmp_path: Path) -> None:
    """Neither another checkpoint's scores nor those of other rows are taken for these."""
    model, cross = tiny("gpt2"), rows()
    resumed: list[Progress] = []

    def run(cross: Rows, identity: str, temperature: float = 1.0) -> int:
        resumed.clear()
        score(
            Policy(model),
            cross,
            response_ids=cross.names,
            temperature=temperature,
            resume=Resume(tmp_path / "unfinished", identity),
            on_progress=resumed.append,
        )
        return resumed[-1].resumed_pairs

    everything = 6 * len(cross.reasoning_ids_R)
    assert run(cross, "a") == 0
    assert run(cross, "a") == everything
    assert run(cross, "b") == 0
    fewer = Rows(*(side[:-1] for side in cross.lists()))
    assert run(fewer, "b") == 0
    assert run(fewer, "b", temperature=0.7) == 0
    assert run(fewer, "b", temperature=0.7) == 5 * len(fewer.reasoning_ids_R)


def test_a_damaged_record_is_scored_again(tmp_path: Path) -> None:
    model, cross = tiny("gpt2"), rows()
    folder = tmp_path / "unfinished"

    def run() -> np.ndarray:
        result = score(
            Policy(model), cross, response_ids=cross.names, resume=Resume(folder, "identity")
        )
        return result.logp_RP

    first = run()
    files = sorted(folder.glob("*.npz"))
    files[0].write_bytes(files[0].read_bytes()[:-40])
    files[1].write_bytes(b"")
    assert run().tobytes() == first.tobytes()


def test_a_folder_that_takes_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cross = rows()
    with pytest.raises(UsageError, match="unfinished scores can't be kept there"):
        score(
            Policy(tiny("gpt2")),
            cross,
            response_ids=cross.names,
            resume=Resume(tmp_path / "file" / "unfinished", "identity"),
        )


def test_interrupted_at_the_terminal(tmp_path: Path) -> None:
    """Ctrl-C is told with the way on, and the same command goes on."""
    step = SAMPLE_RUNS / "healthy" / "rollouts" / "step_00000.parquet"
    words = ["analyze", str(step), "--ckpt", "step_00000", "--resamples", "100", "--quiet"]
    command = [sys.executable, "-m", "ragen_diag", *words, "--out"]
    run = subprocess.Popen(
        [*command, str(tmp_path / "a")],
        stderr=subprocess.PIPE,
        text=True,
        # A shell in the background starts its children deaf to it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    kept = tmp_path / "a" / "unfinished"
    deadline = time.monotonic() + 120
    while not list(kept.glob("*.npz")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGINT)
    _, told = run.communicate(timeout=120)
    assert run.returncode == 130
    assert told.count("\n") == 1
    assert f"interrupted; what was scored is kept in {kept}: the same command goes on there" in told
    for out in ("a", "b"):
        subprocess.run([*command, str(tmp_path / out)], check=True, capture_output=True)
    assert not kept.exists()
    went_on, straight = (
        json.loads((tmp_path / out / "result.json").read_text()) for out in ("a", "b")
    )
    assert went_on["run"]["resumed_pairs"] > 0 == straight["run"]["resumed_pairs"]
    assert went_on["run"]["fed_tokens"] < straight["run"]["fed_tokens"]
    for result in (went_on, straight):
        del result["run"]
    assert went_on == straight
    scores = [(tmp_path / out / "scores.parquet").read_bytes() for out in ("a", "b")]
    assert scores[0] == scores[1]
