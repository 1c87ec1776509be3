"""AReaL's `{version}/{task_id}.jsonl`: prompt and completion with their special tokens, reward.

One file holds the samples of one prompt at one version of the policy, so that its name is no step.
`head_version` and `tail_version` are those of the policy at the first and the last token.
"""

import polars as pl

from ragen_diag.dumps.columns import texts
from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.raw import RawTable

NAMES = {
    "tail_version": "step",
    "task_id": "group_id",
    "prompt": "prompt",
    "completion": "response",
}
REWARD = "reward"
ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001  (the token is written so)
    "</s>",
    "<eos>",
)
"""Tokens with which models end an answer, as text."""


def draft(raw: RawTable) -> Draft:
    """Policy versions and lengths are kept as JSON.

    A response that stops without a token that ends one was cut off; this is concluded only where
    such tokens are in the texts at all.
    """
    frame = raw.frame
    columns = {new: frame[old] for old, new in NAMES.items() if old in frame.columns}
    if {"task_id", "sample_idx"} <= set(frame.columns):
        sample = texts(frame["task_id"]) + "_" + texts(frame["sample_idx"])
        columns["sample_id"] = sample.alias("sample_idx")
    reasons = _finish_reasons(frame)
    if reasons is not None:
        columns["finish_reason"] = reasons
    elsewhere = {"task_id", "sample_idx", "prompt", "completion", REWARD}
    return Draft(
        columns=columns,
        reward=REWARD if REWARD in frame.columns else None,
        extra=tuple(name for name in frame.columns if name not in elsewhere),
    )


def _finish_reasons(frame: pl.DataFrame) -> pl.Series | None:
    """Whether each completion ends as it should; None where the texts show no such tokens."""
    if "completion" not in frame.columns:
        return None
    ends = list(ENDS)
    completion = texts(frame["completion"]).str.strip_chars_end()
    ended = pl.any_horizontal(pl.lit(completion).str.ends_with(end) for end in ends)
    reason = pl.when(ended).then(pl.lit("stop")).when(ended.not_()).then(pl.lit("length"))
    reasons = pl.select(reason.alias("completion")).to_series()
    asked = "prompt" in frame.columns and texts(frame["prompt"]).str.contains_any(ends).any()
    return reasons if asked or (reasons == "stop").any() else None


AREAL = Dialect(
    name="areal",
    signatures=(frozenset({"task_id", "sample_idx", "prompt", "completion"}),),
    draft=draft,
    telling=frozenset({"head_version", "tail_version"}),
    file_names_step=False,
)
