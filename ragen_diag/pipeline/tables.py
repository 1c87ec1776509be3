"""The tables of the out folder: a row per response, and a row per prompt.

Comes in: the canonical rows, which of them were scored, and what was measured per row. Goes out:
polars frames with the columns that other tools rely on. Measures nothing itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ragen_diag.metrics.reward_groups import GroupReward
from ragen_diag.pipeline.step import Step


@dataclass(frozen=True)
class ScoredRows:
    """Per scored response, in the order of the score matrix; nats per response.

    `row_R` is its row in the canonical table, `margin_R` the own column's score minus the best
    other's (null with a single column), `credit_R` its share of a correct retrieval.
    """

    row_R: NDArray[np.int64]
    own_R: NDArray[np.int64]
    n_tokens_R: NDArray[np.int64]
    matched_R: NDArray[np.float64]
    marginal_R: NDArray[np.float64]
    best_column_R: NDArray[np.int64]
    margin_R: NDArray[np.float64] | None
    credit_R: NDArray[np.float64]


def response_id(row: int) -> str:
    """Id of a step's response: its place in the canonical table, which any reader can follow.

    >>> response_id(12)
    'r000012'
    """
    return f"r{row:06d}"


def response_table(
    step: Step, excluded: Mapping[int, str], scored: ScoredRows | None
) -> pl.DataFrame:
    """A row per response of the step, scored or not.

    `excluded` is the reason of each row that was not scored. `matched`, `marginal` and `margin`
    are in nats per response, `response_length` in tokens.
    """
    table, rows = step.table, step.table.height
    truncation = step.truncation
    frame = pl.DataFrame(
        {
            "response_id": [response_id(row) for row in range(rows)],
            "sample_id": table["sample_id"],
            "group_id": table["group_id"],
            "turn": table["turn"],
            "reward": table["reward"],
            "span": [span.status.value for span in step.spans],
            "response_length": pl.Series(step.lengths_N or [None] * rows, dtype=pl.Int64),
            "truncated": pl.Series(
                [None] * rows if truncation is None else truncation.truncated_N, dtype=pl.Boolean
            ),
            "excluded": pl.Series([excluded.get(row) for row in range(rows)], dtype=pl.String),
        }
    ).with_row_index("_at")
    frame = frame.join(_scored_frame(scored), on="_at", how="left", maintain_order="left")
    first = ["response_id", "sample_id", "group_id", "own", "n_tokens", "matched", "marginal"]
    rest = ["best_column", "margin", "reward", "span", "response_length", "truncated", "excluded"]
    return frame.select(*first, *rest, "turn")


def _scored_frame(scored: ScoredRows | None) -> pl.DataFrame:
    dtypes = {
        "_at": pl.UInt32,
        "own": pl.Int64,
        "n_tokens": pl.Int64,
        "matched": pl.Float64,
        "marginal": pl.Float64,
        "best_column": pl.Int64,
        "margin": pl.Float64,
    }
    if scored is None:
        return pl.DataFrame(schema=dtypes)
    return pl.DataFrame(
        {
            "_at": scored.row_R,
            "own": scored.own_R,
            "n_tokens": scored.n_tokens_R,
            "matched": scored.matched_R,
            "marginal": scored.marginal_R,
            "best_column": scored.best_column_R,
            "margin": scored.margin_R,
        },
        schema_overrides=dtypes,
    ).select(pl.col(name).cast(dtype) for name, dtype in dtypes.items())


def group_table(groups: Sequence[GroupReward]) -> pl.DataFrame:
    """A row per reward group, in first-seen order.

    `flat` is the reason why its rewards do not vary, null where they do; `bucket` is "Q1".."Q6",
    null where they do not. `n` counts finite rewards, `reward_var` is null below two of them.
    `distinct_exact` and `distinct` are the share of its responses that are different texts, the
    latter without regard to white space; null below two.
    """
    rows = [
        (
            g.group,
            g.n,
            g.mean,
            g.var,
            g.flat,
            g.bucket if g.flat is None else None,
            g.distinct_exact,
            g.distinct,
        )
        for g in groups
    ]
    schema = {
        "group_id": pl.String,
        "n": pl.Int64,
        "reward_mean": pl.Float64,
        "reward_var": pl.Float64,
        "flat": pl.String,
        "bucket": pl.String,
        "distinct_exact": pl.Float64,
        "distinct": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def prompt_table(
    table: pl.DataFrame,
    column_of_row: NDArray[np.int64],
    prompts: Sequence[str],
    groups: Sequence[GroupReward],
    scored: ScoredRows | None,
) -> pl.DataFrame:
    """A row per distinct prompt: its groups, its rewards and how often its responses find it.

    `column_of_row` is (rows,), -1 for rows of no column. Over the rows of the prompt, scored or
    not: `n`, `reward_mean`, `reward_var` (ddof 1, null below two rewards). `bucket` is null where
    the prompt's groups fall into different ones, `retrieval_share` where none of its rows is
    scored. `turn` is the one at which the prompt stands: its responses are told from those of the
    same turn alone. `distinct_exact` and `distinct` are those of `group_table`, the mean over rows
    where the prompt has several groups.
    """
    bucket_of = {group.group: group.bucket for group in groups}
    rows = (
        table.select("group_id", "turn", "reward")
        .with_columns(
            column=pl.Series(column_of_row),
            bucket=pl.Series([bucket_of[group] for group in table["group_id"]], dtype=pl.String),
        )
        .join(
            group_table(groups).select("group_id", "distinct_exact", "distinct"),
            on="group_id",
            how="left",
            maintain_order="left",
        )
        .filter(pl.col("column") >= 0)
    )
    per_prompt = rows.group_by("column").agg(
        group_ids=pl.col("group_id").unique(maintain_order=True),
        n=pl.len().cast(pl.Int64),
        reward_mean=pl.col("reward").mean(),
        reward_var=pl.col("reward").var(ddof=1),
        bucket=pl.when(pl.col("bucket").n_unique() == 1).then(pl.col("bucket").first()),
        turn=pl.when(pl.col("turn").n_unique() == 1).then(pl.col("turn").first()),
        distinct_exact=pl.col("distinct_exact").mean(),
        distinct=pl.col("distinct").mean(),
    )
    columns = pl.DataFrame(
        {"column": range(len(prompts)), "prompt": list(prompts)},
        schema={"column": pl.Int64, "prompt": pl.String},
    )
    return columns.join(per_prompt, on="column", how="left", maintain_order="left").join(
        _retrieval_shares(scored), on="column", how="left", maintain_order="left"
    )


def _retrieval_shares(scored: ScoredRows | None) -> pl.DataFrame:
    credit = pl.DataFrame(
        {
            "column": [] if scored is None else scored.own_R,
            "credit": [] if scored is None else scored.credit_R,
        },
        schema={"column": pl.Int64, "credit": pl.Float64},
    )
    return credit.group_by("column").agg(retrieval_share=pl.col("credit").mean())
