"""Every trainer's files read as they are meant; what is no dump is refused; real files hold."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from dialect_files import REFUSED, WRITERS, Writer, disagreements

from ragen_diag.dumps import read_dump
from ragen_diag.errors import DumpError
from ragen_diag.rollouts import SCHEMA, Rollouts
from ragen_diag.settings import Reading

SAMPLES = Path(__file__).parents[2] / "shared" / "samples"
UNSCORED = Reading(rewards=(("none", 1.0),))


def _name(function: Callable[..., object]) -> str:
    return f"{function.__module__.rpartition('.')[2]}-{function.__name__}"


@pytest.mark.parametrize("write", WRITERS, ids=_name)
def test_files_read_as_their_trainer_means_them(write: Writer, tmp_path: Path) -> None:
    case = write(tmp_path)
    rollouts = read_dump(list(case.paths), reading=case.reading)
    found = disagreements(case, rollouts)
    assert not found, "\n".join([case.name, *found])
    assert dict(rollouts.table.schema) == dict(pl.DataFrame(schema=SCHEMA).schema)


@pytest.mark.parametrize("write", REFUSED, ids=_name)
def test_what_is_no_dump_is_refused_without_running_it(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = write(tmp_path)
    with pytest.raises(DumpError) as refused:
        read_dump([path])
    message = str(refused.value)
    assert not (tmp_path / "marker").exists()
    assert path.name in message
    assert "\n" not in message
    assert re.search(REFUSED[write], message), message


def _sample(name: str, reading: Reading | None = None) -> Rollouts:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip("the public samples are not here")
    return read_dump([path], reading=reading or Reading())


def _sizes(rollouts: Rollouts, *columns: str) -> list[int]:
    """Group sizes in descending order, a trajectory counted once."""
    table = rollouts.in_scope().table
    return sorted((len(part) for part in table.partition_by(*columns)), reverse=True)


def test_real_verl_dump() -> None:
    rollouts = _sample("verl__1.jsonl")
    text = (SAMPLES / "verl__1.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.split("\n") if line]
    assert (rollouts.dialect, rollouts.steps, rollouts.notes) == ("verl", [1], {})
    assert rollouts.table["response"].to_list() == [row["output"] for row in rows]
    assert Counter(rollouts.table["reward"].to_list()) == {0.0: 126, 1.0: 2}
    assert _sizes(rollouts, "group_id") == [1] * 128
    assert set(rollouts.table["group_source"]) == {"prompt_text"}


def test_real_areal_dump() -> None:
    rollouts = _sample("areal__14.jsonl")
    assert (rollouts.dialect, rollouts.steps) == ("areal", [0])
    assert _sizes(rollouts, "group_id") == [2]
    assert rollouts.table["finish_reason"].to_list() == ["stop", "length"]
    assert rollouts.table["reward"].to_list() == [1.0, 0.0]


def test_real_verifiers_dump() -> None:
    """Its `id` counts rows by threes, though every third row is another rollout of a question."""
    rollouts = _sample("verifiers__math_python_results.jsonl")
    table = rollouts.in_scope().table
    assert rollouts.dialect == "verifiers"
    assert table.height == 15
    assert set(rollouts.table["reward"]) == {1.0}
    assert _sizes(rollouts, "group_id") == [3] * 5
    answers = {frozenset(part["ground_truth"]) for part in table.partition_by("group_id")}
    assert answers == {frozenset([answer]) for answer in ("0", "98", "4", "17", "6")}


def test_real_vagen_episode() -> None:
    rollouts = _sample("vagen__metrics.json")
    said = json.loads((SAMPLES / "vagen__messages.json").read_text(encoding="utf-8"))
    texts = [one["content"][0]["text"] for one in said if one["role"] == "assistant"]
    assert rollouts.dialect == "vagen"
    assert rollouts.table["response"].to_list() == texts
    assert len(texts) == 4
    assert rollouts.table["trajectory_id"].n_unique() == 1
    assert rollouts.in_scope().table["reward"].to_list() == [0.01]
    assert set(rollouts.table["env"]) == {"SearchR1"}


def test_real_ms_swift_samples_have_no_reward() -> None:
    with pytest.raises(DumpError, match="reward"):
        _sample("ms-swift__sampling.jsonl")
    rollouts = _sample("ms-swift__sampling.jsonl", UNSCORED)
    assert rollouts.table.height == 33
    assert _sizes(rollouts, "group_id") == [4] * 5 + [3] * 3 + [2, 1, 1]
    assert rollouts.table["reward"].null_count() == 33


def test_real_empty_dump() -> None:
    with pytest.raises(DumpError, match=r"tinker__empty\.json.*(empty|0 bytes)"):
        _sample("tinker__empty.json")
