"""A dump that nobody's trainer is known for: columns under the names that are usual for them.

The canonical name comes first. Of several other names for one thing none is guessed where results
hang on it; elsewhere the first is taken and the others are kept as JSON.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.rewards import is_numeric
from ragen_diag.errors import DumpError

_DECISIVE = {
    "step": """step global_step training_step train_step iteration rollout_id gen_step
        tail_version""",
    "group_id": """group_id uid group_index group_idx prompt_idx prompt_id example_id problem_id
        question_id task_id task_hash prompt_hash""",
    "trajectory_id": "trajectory_id traj_uid traj_id",
    "turn": "turn turn_idx turn_index",
    "prompt": "prompt input input_prompt question query",
    "messages": """messages prompt_messages conversation chat_completions messages_and_choices
        history""",
    "response": """response completion responses output output_response predict generation
        generated_text llm_output raw_completion""",
    "prompt_ids": "prompt_ids prompt_tokens prompt_token_ids",
    "response_ids": """response_ids response_tokens response_token_ids completion_ids output_ids
        output_token_ids""",
    "rollout_logprobs": """rollout_logprobs rollout_log_probs generation_logprobs
        inference_logprobs logprobs""",
}
_DESCRIBING = {
    "sample_id": "sample_id sample_idx index traj_idx request_id custom_id episode_id idx",
    "split": "split mode",
    "advantage": "advantage advantages",
    "ground_truth": "ground_truth gts answer label solution target",
    "finish_reason": """finish_reason stop_reason status termination_reason stop_condition
        is_truncated truncated""",
    "env": "env env_name env_class data_source source dataset domain task",
}
ALIASES = {role: tuple(names.split()) for role, names in (_DECISIVE | _DESCRIBING).items()}
"""Canonical name -> the names it goes by, the canonical one first."""
REWARDS = (
    "reward",
    "score",
    "rewards",
    "scores",
    "total_reward",
    "cumulative_reward",
    "scalar_reward",
)
PASSED_ON = ("reward_components", "group_source", "extra", "_file", "_row", "_flags")
"""Columns of the canonical table that have no other name."""
GRADES = frozenset(
    {
        "acc",
        "accuracy",
        "correct",
        "correctness",
        "exact_match",
        "format",
        "is_correct",
        "passed",
        "success",
        "valid",
        "won",
    }
)
"""Numbers beside the reward that grade a response; others may be lengths, times or places."""


def draft(raw: RawTable) -> Draft:
    """Columns by their names; the only one that can be the reward is, of several none is.

    Raises:
        DumpError: several columns can be the step, group, prompt, response or the like, and none
            has the canonical name.
    """
    frame = raw.frame
    names = roles(raw.path, frame.columns)
    columns = {new: frame[old] for old, new in names.items()}
    reason = columns.get("finish_reason")
    if reason is not None and reason.dtype == pl.Boolean:
        columns["finish_reason"] = _truncated(reason)
    rewards = [name for name in REWARDS if name in frame.columns]
    reward = rewards[0] if len(rewards) == 1 or "reward" in rewards else None
    others = [name for name in frame.columns if name not in names and name != reward]
    graded = [name for name in others if _grades(name) and is_numeric(frame[name])]
    parts = () if "reward_components" in names else tuple(graded)
    return Draft(
        columns=columns,
        reward=reward,
        parts=parts,
        extra=tuple(name for name in others if name not in parts),
        notes={"two_reward_columns": frame.height} if reward and len(rewards) > 1 else {},
    )


def roles(path: Path | str, columns: Sequence[str]) -> dict[str, str]:
    """Column of the dump -> canonical name, for all that are known by their names but rewards.

    Raises:
        DumpError: several columns can be one that results hang on; the message names them.
    """
    found = {name: name for name in PASSED_ON if name in columns}
    for role, aliases in ALIASES.items():
        there = [name for name in aliases if name in columns]
        if len(there) > 1 and role in _DECISIVE and role not in there:
            listed = " and ".join(there)
            raise DumpError(
                f"{path}: columns {listed} can each be the {role}; say which it is, as in"
                f" --map {role}={there[0]}"
            )
        found |= dict.fromkeys(there[:1], role)
    return found


def _truncated(values: pl.Series) -> pl.Series:
    reason = (
        pl.when(pl.lit(values)).then(pl.lit("length")).when(~pl.lit(values)).then(pl.lit("stop"))
    )
    return pl.select(reason.alias(values.name)).to_series()


def _grades(name: str) -> bool:
    name = name.lower()
    return name in GRADES or name in REWARDS or name.endswith(("reward", "score"))


GENERIC = Dialect(
    name="generic",
    signatures=tuple(
        frozenset({name})
        for role in ("response", "response_ids", "messages")
        for name in ALIASES[role]
    ),
    draft=draft,
)
