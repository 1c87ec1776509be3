"""The command line of `postmortem`: what it refuses, what it prints, and where it writes."""

import json
import sys

import pytest
from small_runs import small_run

from ragen_diag.cli import main


def run_cli(arguments, capsys) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setattr(sys, "argv", ["ragen-diag", *arguments])
        main()
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("cli") / "my_run", steps=(0, 60, 120), prompts=6)


def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are most of the time that a small run takes."""
    monkeypatch.setattr("ragen_diag.report.postmortem.folder.find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu-hour-cost", "2"], "--gpu-hour-cost needs --step-minutes"),
        (["--scorer", "best"], "--scorer"),
        (["--scorer", "fixed:"], "--scorer"),
        (["RUN", "--history", "log.csv"], "--history belongs to one run"),
        (["--history", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_wrong_usage_is_one_line_and_no_traceback(folder, tmp_path, capsys, arguments, said):
    second = str(tmp_path)
    arguments = [second if part == "RUN" else part for part in arguments]
    code, out, err = run_cli(["postmortem", str(folder), *arguments], capsys)
    assert code == 2 and out == ""
    assert said in err and "Traceback" not in err


def test_a_run_named_twice_is_refused(folder, capsys):
    code, _, err = run_cli(["postmortem", str(folder), str(folder)], capsys)
    assert code == 2 and "named twice" in err


def test_a_folder_without_rollouts_is_refused(tmp_path, capsys):
    code, _, err = run_cli(["postmortem", str(tmp_path)], capsys)
    assert code == 2 and str(tmp_path) in err


def test_one_run_tells_its_story_and_writes_where_it_says(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["postmortem", str(folder), "--resamples", "100", "-q"]
    code, out, err = run_cli(arguments, capsys)
    assert code == 0 and err == ""
    # Three steps are too few for an onset, and that is said rather than guessed.
    assert "COULD NOT JUDGE" in out and "my_run" in out
    written = tmp_path / "ragen-diag-out" / "my_run" / "postmortem"
    assert (written / "postmortem.html").exists()
    record = json.loads((written / "postmortem.json").read_text())
    assert (written / "figures" / "timeline.svg").exists()
    without_matplotlib(monkeypatch)
    code, out, _ = run_cli([*arguments, "--json"], capsys)
    assert code == 0
    again = json.loads(out)
    assert {**again, "run": None} == {**record, "run": None}
    assert [step["step"] for step in again["steps"]] == [0, 60, 120]
    # Figures of before would not be those of these numbers.
    assert list((written / "figures").iterdir()) == []
    assert "matplotlib is not installed" in (written / "postmortem.html").read_text("utf-8")


def test_several_runs_make_a_sweep(folder, tmp_path, capsys, monkeypatch):
    without_matplotlib(monkeypatch)
    other = small_run(tmp_path / "other", "healthy", steps=(0, 60, 120), prompts=6)
    out_folder = tmp_path / "out"
    arguments = ["postmortem", str(folder), str(other), "--out", str(out_folder), "-q"]
    code, out, _ = run_cli([*arguments, "--resamples", "100"], capsys)
    assert code == 0 and "my_run" in out and "other" in out
    assert "4 are needed to speak of an order" in " ".join(out.split())
    assert {path.name for path in out_folder.iterdir()} == {
        "my_run",
        "other",
        "sweep.html",
        "sweep.json",
        "summary.md",
    }
