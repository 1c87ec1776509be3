"""Rows of the canonical table -> a narrow table of what groups, copies and repeats are told by.

Texts and ids become hashes of 64 bits, so that tens of millions of rows fit into memory where
their texts do not. Two texts of ten million share a hash once in some 400,000 dumps.
"""

from collections.abc import Sequence
from hashlib import blake2b

import polars as pl

KEY_COLUMNS = (
    "step",
    "group_id",
    "group_source",
    "sample_id",
    "trajectory_id",
    "turn",
    "split",
    "prompt",
    "messages",
    "prompt_ids",
    "response",
    "response_ids",
    "ground_truth",
    "reward",
    "_row",
)
"""Canonical columns that the keys are made of."""
INFERRED = ("derived_key", "contiguous", "prompt_text")
"""Sources of a group id that is not the trainer's own."""
_SOURCE = pl.Enum(("explicit", *INFERRED))


def row_keys(table: pl.DataFrame, file: int, *, named: bool = True) -> pl.DataFrame:
    """One row of numbers for each row of the canonical table; hashes are UInt64.

    `file` is the place of the rows' file in the dump. Columns: step, file, row, group (null
    without an id), named (whether the id is the trainer's own), unsettled (whether the table does
    not say so, as one that was converted does), source (where the id is from, else),
    sample, trajectory, turn, split, prompt (null without one), truth, response, reward; and where
    rows are to be `named`, digest: a hash of prompt and truth that is the same everywhere, from
    which ids are made.
    """
    prompt = _first_hash(table, "prompt", "messages", "prompt_ids")
    response = _first_hash(table, "response", "response_ids")
    inferred = pl.col("group_source").is_in(INFERRED).fill_null(False)
    keys = table.select(
        pl.col("step"),
        pl.lit(file, pl.UInt32).alias("file"),
        pl.col("_row").cast(pl.UInt32).alias("row"),
        # An evaluation counts its groups anew; its rewards are not those of training.
        (_hash(pl.col("group_id")) ^ pl.col("split").hash(seed=1)).alias("group"),
        (pl.col("group_id").is_not_null() & ~inferred).alias("named"),
        pl.col("group_source").is_null().alias("unsettled"),
        pl.when(pl.col("group_id").is_not_null() & inferred)
        .then("group_source")
        .cast(_SOURCE)
        .alias("source"),
        _hash(pl.col("sample_id")).alias("sample"),
        _hash(pl.col("trajectory_id")).alias("trajectory"),
        pl.col("turn"),
        pl.col("split").cast(pl.Categorical),
        prompt.alias("prompt"),
        _hash(pl.col("ground_truth")).alias("truth"),
        response.alias("response"),
        pl.col("reward"),
    )
    if named:
        keys = keys.with_columns(_digests(table))
    # A column without values costs nothing as such.
    nothing = [name for name in keys.columns if keys[name].null_count() == keys.height]
    return keys.with_columns(pl.lit(None).alias(name) for name in nothing)


def joined(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The keys of all batches, in order."""
    return pl.concat(parts, how="vertical_relaxed")


def prompt_text(table: pl.DataFrame) -> pl.Expr:
    """What identifies a prompt before any tokenizer is known, as text; null without a prompt."""
    return pl.coalesce(*_texts(table, "prompt", "messages", "prompt_ids"))


def of_first_turn(keys: pl.DataFrame) -> pl.DataFrame:
    """The keys with prompt, truth and digest of each trajectory's first turn on all its turns:
    later prompts differ, but the trajectory is one response to the first."""
    if keys["trajectory"].dtype == pl.Null or keys["turn"].dtype == pl.Null:
        return keys
    names = [name for name in ("prompt", "truth", "digest") if name in keys.columns]
    first = pl.col(names).sort_by("turn").first().over("step", "file", "trajectory")
    return keys.with_columns(
        pl.when(pl.col("trajectory").is_not_null()).then(first).otherwise(pl.col(names))
    )


def _digests(table: pl.DataFrame) -> pl.Series:
    keyed = table.select(prompt_text(table).alias("prompt"), truth="ground_truth")
    distinct = keyed.unique().drop_nulls("prompt")
    values = [_digest(prompt, truth) for prompt, truth in distinct.rows()]
    named = distinct.with_columns(pl.Series("digest", values, dtype=pl.UInt64))
    on = ["prompt", "truth"]
    return keyed.join(named, on=on, how="left", nulls_equal=True, maintain_order="left")["digest"]


def _digest(prompt: str, ground_truth: str | None) -> int:
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    text = f"{len(prompt)}:{prompt}:{'' if ground_truth is None else '=' + ground_truth}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _first_hash(table: pl.DataFrame, *names: str) -> pl.Expr:
    return _hash(pl.coalesce(*_texts(table, *names)))


def _texts(table: pl.DataFrame, *names: str) -> list[pl.Expr]:
    first, *others = names
    if not table[first].null_count():
        return [pl.col(first)]
    there = [name for name in others if table[name].null_count() < table.height]
    nested = (
        pl.when(pl.col(name).is_not_null()).then(pl.struct(name).struct.json_encode())
        for name in there
    )
    return [pl.col(first), *nested]


def _hash(values: pl.Expr) -> pl.Expr:
    return pl.when(values.is_not_null()).then(values.hash())
