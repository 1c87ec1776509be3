"""verl's `{step}.jsonl` and its forks': input, output, gts, score, step, and what rewards add.

Only the V1 trainer writes ids; before it the batch was balanced, so row order says nothing about
groups. `input` and `output` are decoded without special tokens.
"""

import polars as pl

from ragen_diag.dumps.columns import as_components, texts
from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.rewards import is_numeric, one_column

NAMES = {"step": "step", "input": "prompt", "output": "response", "gts": "ground_truth"}
REWARDS = ("score", "reward")
UID_PARTS = r"^(.+)_(\d+)_(\d+)$"


def draft(raw: RawTable, reward: str | None) -> Draft:
    """Numbers besides step and score are components, everything else is kept as JSON."""
    frame = raw.frame
    others = [name for name in frame.columns if name not in NAMES and name != "uid"]
    numeric = [name for name in others if is_numeric(frame[name])]
    name = reward or next((name for name in REWARDS if name in others), None)
    parts = [frame[part] for part in numeric if part != "score"]
    columns = {new: frame[old] for old, new in NAMES.items() if old in frame.columns}
    columns["reward_components"] = as_components(parts, frame.height)
    if "uid" in frame.columns:
        columns |= _from_uid(texts(frame["uid"]))
    return Draft(
        columns=columns,
        reward=one_column(frame[name]) if name in others else None,
        candidates=tuple(numeric),
        extra=tuple(part for part in others if part not in numeric and part != name),
    )


def _from_uid(uid: pl.Series) -> dict[str, pl.Series]:
    """V1's keys are `{uid}_{rollout}_{output}`; several outputs are turns of one trajectory."""
    parts = uid.str.extract_groups(UID_PARTS).struct
    group, rollout, output = (parts.field(str(i)) for i in (1, 2, 3))
    found = {"sample_id": uid, "group_id": group.fill_null(uid)}
    if (output != "0").any():
        found["trajectory_id"] = group + "_" + rollout
        found["turn"] = output
    return found


VERL = Dialect(
    name="verl",
    signatures=(frozenset({"input", "output"}),),
    draft=draft,
)
