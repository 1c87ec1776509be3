"""Rows of a dump -> which rows are responses to one prompt, and a unique id for each row.

Tried in this order, row by row: the trainer's id ("explicit"); for dialects that keep groups
together, runs of rows with equal prompt ("contiguous"); prompt and ground truth
("derived_key"); the prompt alone ("prompt_text"). Everything stays within a step.
"""

from hashlib import blake2b

import polars as pl

from ragen_diag.errors import DumpError

SOURCES = ("explicit", "derived_key", "contiguous", "prompt_text")
_KEY = "_prompt_key"
_SHOWN = 60


def assign_groups(table: pl.DataFrame, *, contiguous: bool) -> tuple[pl.DataFrame, dict[str, int]]:
    """`table` with `group_id`, `group_source` and `sample_id` on every row, and what was odd.

    Notes: "ids_unique_per_row" rows whose explicit ids were given up, since every row had its own
    although prompts repeat; "group_id_with_several_prompts" explicit groups in whose first turns
    more than one prompt occurs; "duplicate_sample_id" rows whose sample id got a suffix.

    Raises:
        DumpError: an explicit id has several prompts in rows that are no turns of a trajectory.
    """
    notes: dict[str, int] = {}
    table = table.with_columns(_prompt_key().alias(_KEY), _valid_source())
    if _ids_name_rows(table):
        notes["ids_unique_per_row"] = table.height
        table = table.with_columns(group_id=pl.lit(None, pl.String), group_source=None)
    _refuse_mixed_groups(table)
    several = _groups_with_several_prompts(table)
    if several:
        notes["group_id_with_several_prompts"] = several
    table = _contiguous(table) if contiguous else _by_key(table)
    table, doubled = _with_sample_ids(table.drop(_KEY))
    if doubled:
        notes["duplicate_sample_id"] = doubled
    return table, notes


def _prompt_key() -> pl.Expr:
    """What identifies a prompt before any tokenizer is known; null without a prompt."""
    chat, ids = (
        pl.when(pl.col(name).is_not_null()).then(pl.struct(name).struct.json_encode())
        for name in ("messages", "prompt_ids")
    )
    return pl.coalesce("prompt", chat, ids)


def _valid_source() -> pl.Expr:
    source = pl.col("group_source")
    kept = pl.when(source.is_in(SOURCES)).then(source).otherwise(pl.lit("explicit"))
    return pl.when(pl.col("group_id").is_not_null()).then(kept).alias("group_source")


def _ids_name_rows(table: pl.DataFrame) -> bool:
    """Whether ids count rows: each is unique, though prompts occur twice or more on average.

    A few prompts that stand twice in a data set are not enough to give up a trainer's ids.
    """
    if not (table["group_source"] == "explicit").fill_null(False).all():
        return False
    ids = table.select(pl.struct("step", "group_id").n_unique()).item()
    prompts = table.select(pl.struct("step", _KEY).n_unique()).item()
    return bool(table.height >= 2 and ids == table.height and prompts * 2 <= table.height)


def _refuse_mixed_groups(table: pl.DataFrame) -> None:
    """Rewards of different prompts must not be compared as if they were of one."""
    no_turn = pl.col("trajectory_id").is_null() & pl.col("turn").is_null()
    rows = table.filter(no_turn, pl.col("group_source") == "explicit", pl.col(_KEY).is_not_null())
    first = pl.col(_KEY).first().over("step", "group_id")
    others = rows.with_columns(_first=first).filter(pl.col(_KEY) != pl.col("_first"))
    if others.is_empty():
        return
    other = others.row(0, named=True)
    group, step = pl.col("group_id") == other["group_id"], pl.lit(other["step"], pl.Int64)
    one = rows.filter(group, pl.col("step").eq_missing(step)).row(0, named=True)
    raise DumpError(
        f"{one['_file']}: group_id {other['group_id'][:_SHOWN]!r} has several prompts, in row"
        f" {one['_row']} and in row {other['_row']} of {other['_file']}; give every prompt an id of"
        " its own or leave group_id out (turns of one trajectory need trajectory_id and turn)"
    )


def _groups_with_several_prompts(table: pl.DataFrame) -> int:
    first_turn = pl.col("turn").is_null() | (
        pl.col("turn") == pl.col("turn").min().over("step", "trajectory_id")
    )
    groups = (
        table.filter(first_turn & (pl.col("group_source") == "explicit"))
        .group_by("step", "group_id")
        .agg(pl.col(_KEY).n_unique())
    )
    return groups.filter(pl.col(_KEY) > 1).height


def _contiguous(table: pl.DataFrame) -> pl.DataFrame:
    run = pl.struct("_file", "step", _KEY).rle_id()
    number = run.rank("dense").over("step") - 1
    return _fill(table, number.cast(pl.String), pl.lit("contiguous"))


def _by_key(table: pl.DataFrame) -> pl.DataFrame:
    keys = table.select(_KEY, "ground_truth").rows()
    digests = {key: _digest(*key) for key in set(keys)}
    # Rows without a prompt have nothing in common: each stays alone.
    ids = [f"row{i}" if key[0] is None else digests[key] for i, key in enumerate(keys)]
    source = (
        pl.when(pl.col("ground_truth").is_not_null() & pl.col(_KEY).is_not_null())
        .then(pl.lit("derived_key"))
        .otherwise(pl.lit("prompt_text"))
    )
    return _fill(table, pl.lit(pl.Series(ids, dtype=pl.String)), source)


def _digest(prompt: str | None, ground_truth: str | None) -> str:
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    text = f"{len(prompt or '')}:{prompt}:{'' if ground_truth is None else '=' + ground_truth}"
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _fill(table: pl.DataFrame, name: pl.Expr, source: pl.Expr) -> pl.DataFrame:
    step = pl.col("step").cast(pl.String) + ":"
    return table.with_columns(
        group_id=pl.col("group_id").fill_null(step.fill_null("") + name),
        group_source=pl.col("group_source").fill_null(source),
    )


def _with_sample_ids(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    within = pl.int_range(pl.len()).over("step", "group_id")
    numbered = pl.col("group_id") + "#" + within.cast(pl.String)
    table = table.with_columns(pl.col("sample_id").fill_null(numbered))
    repeat = pl.int_range(pl.len()).over("step", "sample_id")
    doubled = table.filter(repeat > 0).height
    while table.filter(repeat > 0).height:
        suffixed = pl.col("sample_id") + "#" + repeat.cast(pl.String)
        table = table.with_columns(
            sample_id=pl.when(repeat > 0).then(suffixed).otherwise("sample_id")
        )
    return table, doubled
