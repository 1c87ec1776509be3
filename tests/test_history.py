"""Scalar logs: read as trainers and their libraries write them, each step once, nothing silent."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.trainer_callback import TrainerState

from ragen_diag.errors import HistoryError
from ragen_diag.history import History, coverage, read_history

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.integers(-9, 9)


def values(history: History) -> dict[tuple[int, str], float]:
    return {(step, name): value for step, name, value in history.frame.iter_rows()}


def lines(path: Path, *rows: object, end: str = "\n") -> Path:
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(texts) + end, encoding="utf-8")
    return path


def read_lines(*rows: object, end: str = "\n") -> History:
    with tempfile.TemporaryDirectory() as folder:
        return read_history(lines(Path(folder) / "log.jsonl", *rows, end=end))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 2**40),
        st.dictionaries(st.text(max_size=5).map("m".__add__), NUMBERS, min_size=1, max_size=4),
        min_size=1,
        max_size=8,
    )
)
def test_what_json_lines_hold_is_what_is_read(log: dict[int, dict[str, float]]) -> None:
    steps = sorted(log)
    history = read_lines(*({"step": step, "data": log[step]} for step in steps))
    expected = {(step, name): float(v) for step in steps for name, v in log[step].items()}
    surrogates = [n for _, n in expected if any("\ud800" <= char <= "\udfff" for char in n)]
    assert surrogates or values(history) == expected
    assert len(values(history)) == len(expected)
    assert history.frame.equals(history.frame.sort("step", "name"))
    assert (history.kind, history.restarts) == ("jsonl", ())


def resumed(steps: list[int]) -> tuple[dict[int, int], list[int], int, int]:
    """By hand: the row that holds each step, the resumes that survive, and what was left out."""
    row_of: dict[int, int] = {}
    restarts: list[int] = []
    again = abandoned = 0
    for row, step in enumerate(steps):
        if row and step < steps[row - 1]:
            abandoned += sum(steps[r] >= step for r in row_of.values())
            row_of = {s: r for s, r in row_of.items() if s < step}
            restarts = [s for s in restarts if s < step] + [step]
        again += step in row_of
        row_of[step] = row
    return row_of, restarts, again, abandoned


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=11))
def test_a_resume_drops_what_the_abandoned_run_had_logged(steps: list[int]) -> None:
    history = read_lines(*({"step": step, "row": row} for row, step in enumerate(steps)))
    row_of, restarts, again, abandoned = resumed(steps)
    assert values(history) == {(step, "row"): row for step, row in row_of.items()}
    assert list(history.restarts) == restarts
    left_out = history.left_out.get("logged_again", 0) + history.left_out.get("before_a_resume", 0)
    assert left_out == len(steps) - len(row_of)
    if not again:
        assert history.left_out.get("before_a_resume", 0) == abandoned


def test_an_evaluation_that_comes_late_is_no_resume() -> None:
    rows = [
        {"step": 5, "loss": 1.0},
        {"step": 5, "loss": 2.0},
        {"step": 6, "loss": 3.0, "epoch": 1},
    ]
    history = read_lines(*rows, {"step": 5, "eval/acc": 0.5, "eval/len": 7, "epoch": 1})
    assert history.restarts == ()
    assert values(history)[5, "loss"] == 2.0 and values(history)[5, "eval/acc"] == 0.5
    assert history.left_out == {"logged_again": 1}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40))
def test_a_torn_last_line_costs_itself_alone(cut: int) -> None:
    whole = [json.dumps({"step": step, "loss": step / 8}) for step in range(3)]
    torn = whole[2][: -cut or None]
    history = read_lines(*whole[:2], torn, end="")
    kept = 3 if not cut else 2
    assert values(history) == {(step, "loss"): step / 8 for step in range(kept)}
    assert history.left_out == ({"torn_last_row": 1} if torn and cut else {})


def test_what_is_no_finite_number_is_counted_and_hostile_rows_do_no_harm() -> None:
    odd = {"a": "NaN", "b": None, "c": "x", "d": [1], "e": "1e-2", "f": "True", "_": {"_type": "t"}}
    history = read_lines(
        {"step": "3", "loss": float("nan"), "kl": float("-inf"), **odd},
        f'{{"step": 4, "big": 1{"0" * 6000}, "long": 123456789012345678901234, "\\ud800": 1}}',
        {"step": 5, "\x1b[2J\n": 1.0},
        *({"step": step, "loss": 1} for step in range(6, 16)),
        f'{{"step": 9, "deep": {"[" * 100_000}{"]" * 100_000}}}',
        f'{{"step": 9, "deep": {json.dumps({"a": 1})[:-2] * 40}1{"}" * 41}',
        {"step": 2**70, "loss": 1},
        {"loss": 1, "step": True},
    )
    found = {key: value for key, value in values(history).items() if key[0] < 6}
    assert found.pop((4, "long")) == pytest.approx(1.2345678901234568e23)
    assert found == {
        (3, "e"): 0.01,
        (3, "f"): 1.0,
        (4, "\\ud800"): 1.0,
        (5, "\x1b[2J\n"): 1.0,
    }
    assert history.left_out == {
        "name_repaired": 1,
        "no_step": 2,
        "not_a_number": 4,
        "undefined": 5,
        "unreadable_row": 1,
    }


def test_a_little_garbage_is_counted_and_much_is_refused(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 0.5} for step in range(18)]
    assert read_lines("INFO ready", "[1]", *rows).left_out == {"unreadable_row": 2}
    with pytest.raises(HistoryError, match=r"2 of 19 lines cannot be read, first line 18"):
        read_lines(*rows[1:], "INFO done", "[1]")
    for text in ("", "nothing", "\n\n"):
        (tmp_path / "log.jsonl").write_text(text)
        with pytest.raises(HistoryError, match=r"^[^\n]+$"):
            read_history(tmp_path / "log.jsonl")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"epoch": 1, "\x1b[31m": 2}], r"no row has a step; it holds 'epoch', '\\x1b\[31m'; name"),
        ([{"step": 1, "note": "x"}], "no number at any step in 1 rows"),
        ([{"step": 50 - i, "loss": i} for i in range(50)], "go back at 49 of 50 rows"),
    ],
)
def test_a_log_that_cannot_be_used_says_what_to_do(rows: list[object], message: str) -> None:
    with pytest.raises(HistoryError, match=message) as caught:
        read_lines(*rows)
    assert str(caught.value).isprintable()


def test_the_step_is_found_under_each_trainers_name_for_it() -> None:
    swift = read_lines({"loss": 0.5, "global_step/max_steps": "12/500", "percentage": "2.40%"})
    assert values(swift) == {(12, "loss"): 0.5}
    assert swift.left_out == {"not_a_number": 1}
    verl = read_lines({"step": 7, "data": {"actor/kl": 0.25, "training/global_step": 7}})
    assert values(verl)[7, "actor/kl"] == 0.25
    own = read_lines({"_step": 40, "train/global_step": 2, "kl": 1}, {"_step": 41, "idle": 1})
    assert values(own) == {(2, "kl"): 1.0, (2, "_step"): 40.0}
    assert (own.step_keys, own.left_out) == ({"train/global_step": 1}, {"no_step": 1})
    assert values(read_lines({"_step": 4, "train": {"kl": 1}})) == {(4, "train/kl"): 1.0}


def test_a_table_of_wandb_charts_is_read_without_its_envelope(tmp_path: Path) -> None:
    path = tmp_path / "wandb_export.csv"
    path.write_text(
        '"Step","a - b - kl","a - b - kl__MIN","a - b - kl__MAX","a - b - train/global_step"\n'
        '"100","0.5","0.1","0.9","1"\n"200","NaN","","","2"\n"300","1.5","","","3"\n"400","'
    )
    history = read_history(path)
    assert values(history)[1, "kl"] == 0.5 and values(history)[3, "kl"] == 1.5
    assert set(history.frame["name"]) == {"kl", "_step"}
    assert history.left_out == {"min_max_column": 2, "torn_last_row": 1, "undefined": 1}
    path.write_text("\ufeff;Global_Step;loss\n0;10;1.5\n1;20;\n\n2;30;3\n")
    assert values(read_history(path)) == {(10, "loss"): 1.5, (30, "loss"): 3.0}
    assert read_history(path).left_out == {"unnamed_column": 1}
    path.write_text("Step,a - kl,b - kl\n1,2,3\n")
    assert values(read_history(path)) == {(1, "a - kl"): 2.0, (1, "b - kl"): 3.0}


def test_trainer_state_is_read_as_transformers_writes_it(tmp_path: Path) -> None:
    log = [{"step": 10, "loss": 0.5, "epoch": 1.0}, {"step": 10, "eval_loss": float("nan")}]
    TrainerState(log_history=log).save_to_json(str(tmp_path / "trainer_state.json"))
    (tmp_path / "checkpoint-10").mkdir()
    TrainerState(log_history=log).save_to_json(str(tmp_path / "checkpoint-10/trainer_state.json"))
    history = read_history(tmp_path)
    assert values(history) == {(10, "loss"): 0.5, (10, "epoch"): 1.0}
    assert history.kind == "trainer_state"
    assert history.left_out == {"log_in_a_subfolder": 1, "undefined": 1}
    state = tmp_path / "trainer_state.json"
    state.write_text(state.read_text()[:-40])
    with pytest.raises(HistoryError, match="no JSON that can be read"):
        read_history(state)


def events(folder: Path, steps: range, suffix: str) -> None:
    writer_of = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    with writer_of(str(folder), filename_suffix=suffix) as writer:
        for step in steps:
            writer.add_scalar("train/reward", step / 4, step, new_style=step % 2 == 0)
            writer.add_scalar("train/kl", float("nan") if step == 2 else len(suffix), step)
        writer.add_text("sample", "text", steps.stop)


def test_tensorboard_files_of_one_folder_are_one_run(tmp_path: Path) -> None:
    events(tmp_path, range(1, 6), ".a")
    first = next(tmp_path.iterdir())
    events(tmp_path, range(4, 8), ".bb")
    history = read_history(tmp_path)
    assert history.kind == "tensorboard" and history.restarts == (4,)
    found = values(history)
    assert [found[step, "train/reward"] for step in range(1, 8)] == [s / 4 for s in range(1, 8)]
    kl = {step: 2.0 if step < 4 else 3.0 for step in range(1, 8) if step != 2}
    assert {step: found[step, "train/kl"] for step in range(1, 8) if step != 2} == kl
    assert history.left_out == {"before_a_resume": 4, "not_a_number": 2, "undefined": 1}
    whole = first.read_bytes()
    first.write_bytes(whole[:-3])
    assert read_history(first).left_out == {"torn_last_row": 1, "undefined": 1}
    flipped = whole.index(b"train/reward") + 20
    first.write_bytes(whole[:flipped] + bytes([whole[flipped] ^ 1]) + whole[flipped + 1 :])
    assert read_history(first).left_out == {
        "not_a_number": 1,
        "undefined": 1,
        "unreadable_row": 1,
    }
    first.write_bytes(whole[:60] + bytes(len(whole) - 60))
    with pytest.raises(HistoryError, match="damaged"):
        read_history(first)


@pytest.fixture(scope="module")
def wandb_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run logged offline by W&B itself, long enough for several blocks of its file."""
    wandb = pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("offline")
    quiet: dict[str, Any] = {"silent": True, "console": "off", "x_disable_stats": True}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
            patch.setenv(name, str(folder / "own"))
        with wandb.init(
            project="p", mode="offline", dir=str(folder), settings=wandb.Settings(**quiet)
        ) as run:
            for step in range(0, 600, 3):
                nested = {"kl": float("nan") if step == 9 else step / 4}
                run.log({"actor": nested, "ok": True, "table": wandb.Histogram([1, 2])}, step=step)
            run.log({"note": "x" * 70_000, "last": 1}, step=600)
        wandb.teardown()
    yield folder / "wandb"


def test_an_offline_run_of_wandb_is_read_from_its_file(wandb_folder: Path, tmp_path: Path) -> None:
    history = read_history(wandb_folder)
    found = values(history)
    kl = {step: value for (step, name), value in found.items() if name == "actor/kl"}
    assert kl == {step: step / 4 for step in range(0, 600, 3) if step != 9}
    assert found[300, "ok"] == 1.0 and found[600, "last"] == 1.0
    assert (history.kind, history.restarts) == ("wandb", ())
    assert history.left_out == {"not_a_number": 201, "undefined": 1}
    (file,) = history.paths
    data = file.read_bytes()
    assert len(data) > 3 * 2**15
    torn = tmp_path / file.name
    for size in (40_000, 2**15, 2**15 + 3):
        torn.write_bytes(data[:size])
        part = read_history(torn)
        assert part.left_out.get("torn_last_row", 0) == (size != 2**15 or data[size - 1] != 0)
        assert values(part).items() <= found.items() and len(values(part)) > 40
    torn.write_bytes(data[:100] + b"\xff" + data[101:])
    assert read_history(torn).left_out["unreadable_row"] == 1


def test_a_folder_holds_one_log_or_is_asked_about(wandb_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no log in this folder"):
        read_history(tmp_path)
    with pytest.raises(HistoryError, match="no such file"):
        read_history(tmp_path / "none")
    lines(tmp_path / "a.jsonl", {"step": 1, "loss": 1})
    assert values(read_history(tmp_path)) == {(1, "loss"): 1.0}
    lines(tmp_path / "b.jsonl", {"step": 1, "loss": 1})
    with pytest.raises(HistoryError, match=r"2 logs in this folder \('a.jsonl', 'b.jsonl'\)"):
        read_history(tmp_path)
    file = next(wandb_folder.glob("*/*.wandb"))
    for folder in ("offline-run-1", "offline-run-2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file.name).write_bytes(file.read_bytes())
    history = read_history(tmp_path)
    assert [path.parent.name for path in history.paths] == ["offline-run-1", "offline-run-2"]
    assert history.restarts == (0,)
    (tmp_path / "offline-run-2" / file.name).rename(tmp_path / "offline-run-2" / "run-x.wandb")
    with pytest.raises(HistoryError, match="2 logs in this folder"):
        read_history(tmp_path)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("events.out.tfevents.1.host", "tensorboard.compat.proto.event_pb2"),
        ("run-x.wandb", "wandb.proto.wandb_internal_pb2"),
    ],
)
def test_a_missing_package_is_named(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(b"any")
    with pytest.raises(HistoryError, match=r"pip install 'ragen-diag\[history\]'$"):
        read_history(tmp_path / name)


def test_steps_meet_by_number_never_by_position() -> None:
    history = read_lines(*({"step": step, "reward": 1.0} for step in (10, 20, 40)))
    met = coverage(history, [50, 20, 10, 30, 20])
    assert (met.matched, met.only_in_log, met.only_in_run) == ((10, 20), (40,), (30, 50))
