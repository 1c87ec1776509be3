"""verl's `{step}.jsonl` and its forks': input, output, gts, score, step, and what rewards add.

Only the V1 trainer writes ids; before it the batch was balanced, so row order says nothing about
groups. `input` and `output` are decoded without special tokens. verl-agent writes the same columns
with one row per turn of an environment and copies of rows that fill up its batches; a fork's table
of turns has ids and names of its own.
"""

from collections.abc import Iterator

import polars as pl

from ragen_diag.dumps.columns import numbers, texts
from ragen_diag.dumps.dialect import SKIPPED, Dialect, Draft, draft_by_names
from ragen_diag.dumps.raw import RawTable, Record
from ragen_diag.dumps.rewards import is_numeric

NAMES = {
    "step": "step",
    "input": "prompt",
    "output": "response",
    "gts": "ground_truth",
    "data_source": "env",
    "request_id": "sample_id",
    "traj_uid": "trajectory_id",
}
REWARDS = ("score", "reward")
UID_PARTS = r"^(.+)_(\d+)_(\d+)$"
TURNS = {
    "uid": "group_id",
    "rollout_step": "turn",
    "prompt": "prompt",
    "llm_output": "response",
}
"""What a fork of verl-agent calls the columns of its table of turns."""
PREDICTIONS = frozenset({"answer", "extracted_answer", "pred", "prediction"})
"""Texts of the response, which may be numbers."""
NO_METRICS = frozenset({"active", "done", "env_index"})


def draft(raw: RawTable) -> Draft:
    """Numbers besides step and score are components, everything else is kept as JSON.

    Some numbers are written as text, "True" or "3", which is noted. A validation's `reward` says
    the same as its `score`; rows in which it does not are noted.
    """
    frame = raw.frame
    others = [name for name in frame.columns if name not in NAMES and name != "uid"]
    reward = next((name for name in REWARDS if name in others), None)
    told = [name for name in others if _is_told(frame[name])]
    parts = tuple(
        name for name in others if name not in REWARDS and (is_numeric(frame[name]) or name in told)
    )
    cells = sum(len(frame[name]) - frame[name].null_count() for name in told)
    columns = {new: frame[old] for old, new in NAMES.items() if old in frame.columns}
    if "uid" in frame.columns:
        columns = _from_uid(texts(frame["uid"])) | columns
    return Draft(
        columns=columns,
        reward=reward,
        parts=parts,
        extra=tuple(name for name in others if name not in parts and name != reward),
        notes=_disagreements(frame) | ({"component_from_text": cells} if cells else {}),
    )


def _is_told(values: pl.Series) -> bool:
    """Whether a column of text holds numbers alone."""
    if values.dtype != pl.String or values.name in (*REWARDS, *PREDICTIONS):
        return False
    number, reason = numbers(values)
    return bool(number.is_not_null().any()) and not (reason == "bad").any()


def _from_uid(uid: pl.Series) -> dict[str, pl.Series]:
    """V1's keys are `{uid}_{rollout}_{output}`; several outputs are turns of one trajectory.

    An id without such an end is that of the group alone.
    """
    parts = uid.str.extract_groups(UID_PARTS).struct
    group, rollout, output = (parts.field(str(i)) for i in (1, 2, 3))
    found = {
        "group_id": group.fill_null(uid),
        "sample_id": uid.set(group.is_null(), None),
        "trajectory_id": group + "_" + rollout,
        "turn": output,
    }
    return {name: values.alias(uid.name) for name, values in found.items()}


def _disagreements(frame: pl.DataFrame) -> dict[str, int]:
    if not set(REWARDS) <= set(frame.columns):
        return {}
    score, reward = (numbers(frame[name])[0] for name in REWARDS)
    rows = int((score != reward).fill_null(False).sum())
    return {"reward_differs_from_score": rows} if rows else {}


def agent_unfold(record: Record) -> Iterator[Record]:
    """Environments that have ended go on being asked until the last one has; that is no training.

    Their rows are left out.
    """
    yield {SKIPPED: "environment_ended"} if record.get("active") is False else record


def agent_draft(raw: RawTable) -> Draft:
    """verl's columns or the fork's, whose `reward` is that of the turn alone."""
    return draft_by_names(
        raw,
        NAMES | TURNS,
        reward=REWARDS,
        parts=lambda column: column.name not in NO_METRICS and is_numeric(column),
    )


VERL = Dialect(
    name="verl",
    signatures=(frozenset({"input", "output"}),),
    draft=draft,
)

VERL_AGENT = Dialect(
    name="verl-agent",
    signatures=(frozenset({"prompt", "llm_output", "traj_uid"}),),
    draft=agent_draft,
    unfold=agent_unfold,
    telling=frozenset({"llm_output", "traj_uid"}),
    drops_copies=True,
)
