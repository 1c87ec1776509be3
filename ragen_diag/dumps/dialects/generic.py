"""A dump that nobody's trainer is known for: columns under the names that are usual for them.

The canonical name comes first. Of several other names for one thing none is guessed where results
hang on it; elsewhere the first is taken and the others are kept as JSON.
"""

from collections.abc import Iterable

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
TOKENS = ("prompt_ids", "response_ids", "rollout_logprobs")
"""Columns that hold a list per row."""
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
    columns = known_columns(raw, ALIASES)
    columns |= {name: frame[name] for name in PASSED_ON if name in frame.columns}
    reward, notes = known_reward(frame)
    names = {column.name for column in columns.values()}
    others = [name for name in frame.columns if name not in names and name != reward]
    graded = [name for name in others if _grades(name) and is_numeric(frame[name])]
    parts = () if "reward_components" in names else tuple(graded)
    return Draft(
        columns=columns,
        reward=reward,
        parts=parts,
        extra=tuple(name for name in others if name not in parts),
        notes=notes,
    )


def known_columns(raw: RawTable, wanted: Iterable[str]) -> dict[str, pl.Series]:
    """Canonical name -> the column that goes by it, for those of `wanted` that are there.

    Raises:
        DumpError: several columns can be one that results hang on; the message names them.
    """
    found: dict[str, pl.Series] = {}
    for role in wanted:
        there = [name for name in ALIASES[role] if _can_be(role, name, raw.frame)]
        if len(there) > 1 and role in _DECISIVE and role not in there:
            listed = " and ".join(there)
            raise DumpError(
                f"{raw.path}: columns {listed} can each be the {role}; say which it is, as in"
                f" --map {role}={there[0]}"
            )
        if there:
            found[role] = raw.frame[there[0]]
    reason = found.get("finish_reason")
    if reason is not None and reason.dtype == pl.Boolean:
        found["finish_reason"] = _truncated(reason)
    return found


def known_reward(frame: pl.DataFrame) -> tuple[str | None, dict[str, int]]:
    """The column that is the reward, None where none or any of several can be; and notes.

    Notes: "two_reward_columns" rows that have a further one; "reward_named_score" and the like
    rows whose reward has another name than its own.
    """
    there = [name for name in REWARDS if name in frame.columns]
    if REWARDS[0] in there:
        return REWARDS[0], {"two_reward_columns": frame.height} if len(there) > 1 else {}
    if len(there) != 1:
        return None, {}
    return there[0], {f"reward_named_{there[0]}": frame.height}


def _can_be(role: str, name: str, frame: pl.DataFrame) -> bool:
    if name not in frame.columns:
        return False
    # One number per row is how many tokens there are, and not which.
    return role == name or role not in TOKENS or not frame[name].dtype.is_numeric()


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
