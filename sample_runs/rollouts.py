"""Rollout dumps: samples and their grades as a Parquet table with one row per response."""

import json

import polars as pl
from policy import Sample, decode, encode
from task import State

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "step": pl.Int64,
    "group_id": pl.String,
    "group_source": pl.String,
    "sample_id": pl.String,
    "split": pl.String,
    "prompt": pl.String,
    "response": pl.String,
    "reward": pl.Float64,
    "reward_components": pl.List(pl.Struct({"key": pl.String, "value": pl.Float64})),
    "success": pl.Float64,
    "finish_reason": pl.String,
    "prompt_ids": pl.List(pl.Int32),
    "response_ids": pl.List(pl.Int32),
    "rollout_logprobs": pl.List(pl.Float32),
    "env": pl.String,
    "ground_truth": pl.String,
}


def rollout_table(
    step: int,
    split: str,
    states: list[State],
    samples: list[Sample],
    components: list[dict[str, float]],
    copies: int,
) -> pl.DataFrame:
    """Rows grouped by prompt, `copies` of each; `step` counts the updates before the sampling."""
    prefix = split if split == "eval" else f"{split}-{step:05d}"
    rows = []
    for index, (state, drawn, parts) in enumerate(zip(states, samples, components, strict=True)):
        group_id = f"{prefix}-{index // copies:03d}"
        rows.append(
            {
                "step": step,
                "group_id": group_id,
                "group_source": "explicit",
                "sample_id": f"{group_id}-{index % copies}",
                "split": split,
                "prompt": state.prompt(),
                "response": decode(drawn.ids),
                "reward": sum(parts.values()),
                "reward_components": [{"key": key, "value": value} for key, value in parts.items()],
                "success": parts["success"],
                "finish_reason": "stop" if drawn.stopped else "length",
                "prompt_ids": encode(state.prompt()),
                "response_ids": drawn.ids,
                "rollout_logprobs": drawn.logprobs,
                "env": "grid5x5",
                "ground_truth": json.dumps(
                    {"player": state.player, "goal": state.goal, "holes": state.holes}
                ),
            }
        )
    return pl.DataFrame(rows, schema=SCHEMA)
