"""The out folder: all or nothing, the same names, and nobody else's files."""

import json
from dataclasses import replace

import polars as pl
import pytest
from report_products import HOSTILE, healthy, make_inputs, no_checkpoint, template

from ragen_diag.errors import UsageError
from ragen_diag.report import folder as folder_module
from ragen_diag.report.folder import default_folder, write_folder
from ragen_diag.result import read_result
from ragen_diag.scoring.scores import read_scores

NAMES = {
    "report.html",
    "summary.md",
    "prompts.parquet",
    "responses.parquet",
    "scores.parquet",
    "result.json",
    "plots/quadrant.svg",
    "plots/crossscores.svg",
    "plots/rewards.svg",
    "plots/lengths.svg",
}


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def with_sha(product, sha256):
    dump = product.result.inputs.dump.model_copy(update={"sha256": sha256})
    inputs = product.result.inputs.model_copy(update={"dump": dump})
    return replace(product, result=product.result.model_copy(update={"inputs": inputs}))


def test_writes_every_file_and_all_can_be_read_again(tmp_path):
    product, out = template(), tmp_path / "a" / "b"
    written = write_folder(product, out)
    assert names(out) == NAMES == {path.relative_to(out).as_posix() for path in written}
    assert read_result(out / "result.json") == product.result
    assert pl.read_parquet(out / "responses.parquet").equals(product.responses)
    assert pl.read_parquet(out / "prompts.parquet").equals(product.prompts)
    assert read_scores(out / "scores.parquet").response_ids == product.scores.response_ids
    for name in ("report.html", "summary.md", "result.json"):
        assert b"\r" not in (out / name).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_equal_inputs_give_equal_bytes(tmp_path):
    for name in ("one", "two"):
        write_folder(template(), tmp_path / name)
    for name in NAMES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_same_inputs_overwrite_and_leave_other_files_alone(tmp_path):
    out = tmp_path / "out"
    write_folder(template(), out)
    (out / "notes.txt").write_text("mine")
    (out / "plots" / "mine.svg").write_text("mine")
    write_folder(template(), out)
    assert names(out) == NAMES | {"notes.txt", "plots/mine.svg"}


def test_other_inputs_need_force(tmp_path):
    out = tmp_path / "out"
    write_folder(template(), out)
    before = (out / "result.json").read_bytes()
    with pytest.raises(UsageError, match=r"out: holds results of other inputs; .*--force"):
        write_folder(with_sha(template(), "f" * 64), out)
    assert (out / "result.json").read_bytes() == before
    write_folder(with_sha(template(), "f" * 64), out, force=True)
    assert json.loads((out / "result.json").read_text())["inputs"]["dump"]["sha256"] == "f" * 64


@pytest.mark.parametrize("key", ["step", "fingerprint"])
def test_another_step_or_checkpoint_is_another_input(tmp_path, key):
    product, out = template(), tmp_path / "out"
    write_folder(product, out)
    part = "dump" if key == "step" else "checkpoint"
    changed = getattr(product.result.inputs, part).model_copy(
        update={key: 40 if key == "step" else "other"}
    )
    inputs = product.result.inputs.model_copy(update={part: changed})
    other = replace(product, result=product.result.model_copy(update={"inputs": inputs}))
    with pytest.raises(UsageError, match="other inputs"):
        write_folder(other, out)


def test_stale_files_of_ours_go(tmp_path):
    out = tmp_path / "out"
    write_folder(template(), out)
    product = no_checkpoint()
    write_folder(product, out, force=True, plot_format="png")
    assert names(out) == {
        "report.html",
        "summary.md",
        "prompts.parquet",
        "responses.parquet",
        "result.json",
        "plots/rewards.png",
        "plots/lengths.png",
    }


def test_a_folder_that_is_not_ours_is_refused(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("somebody's report")
    with pytest.raises(UsageError, match=r"holds report\.html but no result\.json"):
        write_folder(template(), out)
    (out / "result.json").write_text("{}")
    with pytest.raises(UsageError, match=r"schema version None.*--force"):
        write_folder(template(), out)
    assert (out / "report.html").read_text() == "somebody's report"


def test_an_existing_folder_without_our_files_is_used(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    write_folder(template(), tmp_path)
    assert names(tmp_path) == NAMES | {"notes.txt"}


@pytest.mark.parametrize("force", [False, True])
def test_a_file_in_the_way_is_named(tmp_path, force):
    (tmp_path / "out").write_text("x")
    with pytest.raises(UsageError, match="not a folder"):
        write_folder(template(), tmp_path / "out", force=force)


class Broken(Exception):
    pass


@pytest.mark.parametrize("stage", ["render_html", "render_markdown", "write_scores"])
def test_nothing_is_left_when_rendering_fails(tmp_path, monkeypatch, stage):
    def fail(*args, **kwargs):
        raise Broken

    monkeypatch.setattr(folder_module, stage, fail)
    with pytest.raises(Broken):
        write_folder(template(), tmp_path / "a" / "b" / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_old_result_survives_a_failure(tmp_path, monkeypatch):
    out = tmp_path / "out"
    write_folder(template(), out)
    before = {name: (out / name).read_bytes() for name in NAMES}

    def fail(*args, **kwargs):
        raise Broken

    monkeypatch.setattr(folder_module, "write_scores", fail)
    with pytest.raises(Broken):
        write_folder(template(), out)
    assert {name: (out / name).read_bytes() for name in names(out)} == before


def test_a_full_disk_is_a_usage_error(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "write_scores", fail)
    with pytest.raises(UsageError, match=r"cannot be written \(No space left on device\)"):
        write_folder(template(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_only_the_plots_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "find_spec", lambda name: None)
    write_folder(healthy(), tmp_path / "out")
    assert names(tmp_path / "out") == {name for name in NAMES if "plots" not in name}
    assert "matplotlib is not installed" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("run.parquet", "run"),
        ("runs/tmpl/rollouts/step_00080.parquet", "tmpl"),
        ("runs/tmpl/completions/completions_00010.parquet", "tmpl"),
        ("verl-run/rollout_data/100.jsonl", "verl-run"),
        ("/data/my run[1]/80.jsonl", "my_run_1"),
        ("rollouts/step_00080.parquet", "step_00080"),
        ("runs/tmpl/rollouts", "tmpl"),
    ],
)
def test_default_folder_is_named_after_run_and_checkpoint(path, expected):
    inputs = make_inputs(path=path)
    assert default_folder(inputs.dump, inputs.checkpoint).parts == (
        "ragen-diag-out",
        expected,
        "step_00080",
    )


def test_default_folder_is_named_after_the_step_and_not_a_trainers_sub_folder():
    inputs = make_inputs(path="run/120.jsonl")
    checkpoint = inputs.checkpoint.model_copy(
        update={"path": "/data/run/global_step_120/actor/huggingface"}
    )
    assert default_folder(inputs.dump, checkpoint).parts[-1] == "global_step_120"


def test_default_folder_is_plain_whatever_the_names():
    unscored = no_checkpoint().result.inputs
    assert default_folder(unscored.dump, None).parts[-1] == "step_00080"
    folder = default_folder(make_inputs(path=f"{HOSTILE}/../{HOSTILE}").dump, None)
    assert len(folder.parts) == 3 and ".." not in folder.parts
    assert folder.as_posix().isascii() and len(folder.parts[1]) <= 80
