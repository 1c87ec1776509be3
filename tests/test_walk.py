"""A walk over the steps of a run: nothing scored twice, nothing lost, nothing made up."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_runs import STEPS, Told, fixed, small_run, tell

from ragen_diag.errors import CheckpointError, UsageError
from ragen_diag.pipeline.postmortem import postmortem
from ragen_diag.pipeline.run.store import rows_digest
from ragen_diag.settings import Reading, RunSettings, ScorerChoice, Settings

OWN = ScorerChoice.parse("own")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return small_run(tmp_path_factory.mktemp("small") / "run")


@pytest.fixture(scope="module")
def first(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    told = Told()
    return tell(run, out, told), out, told


def plain(story) -> dict:
    """Everything but when and how long."""
    return {**story.postmortem.model_dump(mode="json"), "run": None}


def copy_of(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder)
    return folder


def test_each_step_has_the_nearest_checkpoint_before_it(first):
    story, _, told = first
    assert told.measured == list(STEPS)
    lags = {s.step: (s.scorer_step, s.lag) for s in story.postmortem.steps}
    checkpoints = sorted({step for step, _ in lags.values()})
    assert lags == {
        step: (near := max(c for c in checkpoints if c <= step), step - near) for step in STEPS
    }
    assert [c.step for c in story.postmortem.inputs.checkpoints] == checkpoints


def test_a_second_time_nothing_is_scored_and_all_is_equal(run, first):
    story, out, _ = first
    again = Told()
    second = tell(run, out, again)
    assert (again.measured, again.kept, again.scored_any) == ([], list(STEPS), False)
    assert plain(second) == plain(story)


def test_only_the_step_that_changed_is_measured_again(run, first, tmp_path):
    out = copy_of(first[1], tmp_path / "out")
    changed = copy_of(run, tmp_path / "run")
    path = changed / "rollouts" / "step_00080.parquet"
    table = pl.read_parquet(path)
    table.with_columns(reward=pl.col("reward") + 0.5).write_parquet(path)
    told = Told()
    tell(changed, out, told)
    assert told.measured == [80]


def test_killed_again_and_again_it_ends_the_same_and_scores_nothing_twice(run, first, tmp_path):
    """SIGKILL as soon as a step begins, so that each process gets one step further."""
    story, _, _ = first
    out = tmp_path / "out"
    begun: list[str] = []
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    for kill_at in (2, 4, 6, None):
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "small_runs.py"), str(run), str(out)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for line in process.stdout:
            begun.append(line.strip())
            if kill_at is not None and line == f"{STEPS[kill_at]} measured\n":
                process.send_signal(signal.SIGKILL)
                break
        process.stdout.close()
        code = process.wait()
        assert code == (0 if kill_at is None else -signal.SIGKILL)
    measured = [int(line.split()[0]) for line in begun if line.endswith("measured")]
    # A step that was begun and killed is begun again; one that was done is not.
    assert sorted(set(measured)) == list(STEPS)
    assert {step for step in STEPS if measured.count(step) > 1} <= {STEPS[k] for k in (2, 4, 6)}
    told = Told()
    assert plain(tell(run, out, told)) == plain(story)
    assert told.measured == []


def test_a_damaged_step_in_the_store_is_made_again(run, first, tmp_path):
    story, out, _ = first
    copied = copy_of(out, tmp_path / "out")
    (copied / "steps" / "step_00040" / "responses.parquet").write_bytes(b"PAR1 no more")
    told = Told()
    assert plain(tell(run, copied, told)) == plain(story)
    assert told.measured == [40]


def test_own_leaves_steps_without_a_checkpoint_unscored_and_says_so(run, tmp_path):
    story = tell(run, tmp_path, scorer=OWN)
    by_step = {s.step: s for s in story.postmortem.steps}
    assert by_step[20].unscored == "no checkpoint of this step"
    assert by_step[20].scored_rows == 0 and by_step[20].rows == 32
    assert by_step[0].lag == 0
    reward = story.timeline.series("reward_mean").value_S
    assert len(reward) == len(STEPS) and not any(map(_nan, reward))


def _nan(value: float) -> bool:
    return value != value


def test_one_yardstick_for_all_steps(run, tmp_path):
    story = tell(run, tmp_path, scorer=fixed("step_00000"))
    assert {(s.scorer_step, s.lag) for s in story.postmortem.steps} == {(0, None)}
    assert story.postmortem.marks.scorer_changes == ()
    with pytest.raises(CheckpointError):
        tell(run, tmp_path / "other", scorer=fixed("step_99999"))


def test_a_run_without_checkpoints_is_told_by_rewards_alone(run, tmp_path):
    bare = copy_of(run, tmp_path / "run")
    shutil.rmtree(bare / "checkpoints")
    story = tell(bare, tmp_path / "out")
    assert {s.unscored for s in story.postmortem.steps} == {"no checkpoint near the rollouts"}
    assert "retrieval_skill" not in {o.metric for o in story.postmortem.onsets}


def test_own_refuses_a_run_whose_checkpoints_are_of_no_step(run, tmp_path):
    moved = copy_of(run, tmp_path / "moved")
    for folder in list((moved / "checkpoints").iterdir()):
        step = int(folder.name.removeprefix("step_"))
        folder.rename(moved / "checkpoints" / f"step_{step + 7:05d}")
    with pytest.raises(UsageError, match="no step of the rollouts has a checkpoint of its own"):
        tell(moved, tmp_path / "out", scorer=OWN)


def test_weights_that_are_nan_are_a_numerical_failure(run, tmp_path):
    broken = copy_of(run, tmp_path / "run")
    last = max((broken / "checkpoints").iterdir())
    weights = last / "model.safetensors"
    tensors = load_file(weights)
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    tensors[name] = torch.full_like(tensors[name], float("nan"))
    save_file(tensors, weights, metadata={"format": "pt"})
    story = tell(broken, tmp_path / "out")
    step = story.postmortem.steps[-1]
    assert step.scored_rows == 0 and "not finite" in step.unscored
    assert story.timeline.points[-1].numerical
    assert "numerical_failure" in {s.code for s in story.postmortem.signatures}


def test_an_unreadable_checkpoint_costs_its_steps_alone(run, tmp_path):
    broken = copy_of(run, tmp_path / "run")
    last = max((broken / "checkpoints").iterdir())
    (last / "model.safetensors").write_bytes(b"\0" * 100)
    story = tell(broken, tmp_path / "out")
    assert story.postmortem.steps[-1].unscored
    assert story.postmortem.steps[0].unscored is None
    assert not story.timeline.points[-1].numerical


def test_steps_written_again_after_a_resume_are_marked(run, tmp_path):
    resumed = copy_of(run, tmp_path / "run")
    # The same run as one JSONL that was appended to: steps 60 and 80 twice, with other texts.
    tables = [
        pl.read_parquet(path).select("step", "prompt", "response", "reward")
        for path in sorted((resumed / "rollouts").iterdir())
    ]
    again = [
        table.with_columns(response=pl.col("response") + " again", reward=pl.lit(0.25))
        for table in tables[3:5]
    ]
    shutil.rmtree(resumed / "rollouts")
    pl.concat([*tables[:5], *again, *tables[5:]]).write_ndjson(resumed / "rollouts.jsonl")
    story = postmortem(
        resumed / "rollouts.jsonl",
        tmp_path / "out",
        settings=Settings(resamples=50, reading=Reading(on_duplicate_step="last")),
        run_settings=RunSettings(),
        observer=Told(),
    )
    assert story.postmortem.marks.resumes == (60,)
    segments = story.timeline.series("reward_mean").segment_S
    assert segments.tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_history_is_joined_by_step(run, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("step,kl\n0,0.01\n40,0.2\n41,0.3\n500,0.9\n")
    story = tell(run, tmp_path / "out", scorer=fixed("step_00000"), history=(str(log),))
    coverage = story.postmortem.inputs.history[0]
    assert (coverage.matched, coverage.only_in_log) == (2, 2)
    assert coverage.only_in_rollouts == (20, 60, 80, 100, 120)
    assert "history/kl" in story.timeline.logged


def test_every_other_step_keeps_the_ends(run, tmp_path):
    told = Told()
    tell(run, tmp_path, told, every=4, scorer=fixed("step_00000"))
    assert told.measured == [0, 80, 120]


def test_the_digest_sees_every_value(tmp_path):
    table = pl.DataFrame({"a": [1, 2], "ids": [[1, 2], [3]], "meta": [{"x": [1.0]}, {"x": [2.0]}]})
    changed = [
        table.with_columns(a=pl.Series([1, 3])),
        table.with_columns(ids=pl.Series([[1, 2], [4]])),
        table.with_columns(meta=pl.Series([{"x": [1.0]}, {"x": [2.5]}])),
        table.reverse(),
        table.rename({"a": "b"}),
    ]
    digests = [rows_digest(frame) for frame in (table, *changed)]
    assert len(set(digests)) == len(digests)
    assert rows_digest(table.clone()) == digests[0]


def test_the_record_is_strict_json(first):
    story, _, _ = first
    text = story.postmortem.to_json()

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(text, parse_constant=refuse)["verdict"] == story.postmortem.verdict
