"""What a stopped run kept is taken for nothing else, whoever else uses its folder."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scoring_cases import Policy, Rows, tiny

from ragen_diag.scoring import Resume, Scores, score
from ragen_diag.scoring.journal import Journal, discard

RECORD = {"sums": np.array([-1.5, -2.0]), "tokens": np.array([-0.5])}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "unfinished"
    folder.mkdir()
    for name in ("notes.txt", "weights.npz", "inputs.json"):
        (folder / name).write_text("mine")
    Journal(Resume(folder, "a"), b"").write("ragged-0-0-0", RECORD)
    second = Journal(Resume(folder, "b"), b"")
    assert second.read("ragged-0-0-0") is None
    second.write("ragged-0-0-0", RECORD)
    assert len(list(folder.iterdir())) == 4
    discard(folder)
    assert sorted(file.name for file in folder.iterdir()) == [
        *("inputs.json", "notes.txt", "weights.npz")
    ]
    assert (folder / "weights.npz").read_text() == "mine"


def test_nothing_is_left_of_what_was_kept(tmp_path: Path) -> None:
    folder = tmp_path / "unfinished"
    Journal(Resume(folder, "a"), b"").write("ragged-0-0-0", RECORD)
    # Of a run that was killed while it wrote.
    (folder / f"ragged-0-0-1.{'0' * 32}.77.partial").write_text("")
    discard(folder)
    assert list(tmp_path.iterdir()) == []
    discard(folder)


def test_two_runs_with_one_folder_do_not_read_each_other(tmp_path: Path) -> None:
    """The second begins, with other inputs, when the first is under way."""
    resume = Resume(tmp_path / "unfinished", "a")
    first, second = (Journal(resume, inputs) for inputs in (b"1", b"2"))
    first.write("ragged-0-0-0", RECORD)
    assert second.read("ragged-0-0-0") is None
    second.write("ragged-0-0-0", {"sums": np.zeros(2), "tokens": np.zeros(1)})
    kept = first.read("ragged-0-0-0")
    assert kept is not None and kept["sums"].tolist() == [-1.5, -2.0]


def test_a_folder_that_another_run_removes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(Resume(tmp_path / "unfinished", "a"), b"")
    plain = np.savez

    def slow(stream: object, **arrays: object) -> None:
        plain(stream, **arrays)
        discard(tmp_path / "unfinished")

    monkeypatch.setattr("ragen_diag.scoring.journal.np.savez", slow)
    journal.write("ragged-0-0-0", RECORD)
    assert journal.read("ragged-0-0-0") is None
    monkeypatch.undo()
    journal.write("ragged-0-0-0", RECORD)
    assert journal.read("ragged-0-0-0") is not None


@dataclass
class Sampled(Rows):
    """Rows with the prompts that they were sampled from."""

    own: list[int]

    @property
    def own_R(self) -> NDArray[np.int64]:
        return np.array(self.own)


def test_equal_rows_of_other_prompts_are_other_inputs(tmp_path: Path) -> None:
    """The pairs are the same, but not of which of them single tokens are wanted."""
    prompts, z = [[1], [2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6, 7], [8, 9]]
    once = Sampled(prompts, [[]] * 3, z, own=[0, 0, 1])
    again = Sampled(prompts, [[]] * 4, [*z, z[0]], own=[0, 0, 1, 2])
    policy, resume = Policy(tiny("gpt2")), Resume(tmp_path / "unfinished", "a")

    def run(cross: Sampled, resume: Resume | None) -> Scores:
        return score(policy, cross, response_ids=cross.names, resume=resume)

    run(once, resume)
    told = run(again, resume).own_logp_R
    expected = run(again, None).own_logp_R
    assert [x.tolist() for x in told] == [x.tolist() for x in expected]
