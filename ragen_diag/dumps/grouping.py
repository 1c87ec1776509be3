"""Keys of all rows -> which rows are responses to one prompt; and the ids of rows from that.

Tried in this order, row by row: the trainer's id ("explicit"); for dialects that keep groups
together, runs of rows with equal prompt ("contiguous"); prompt and ground truth
("derived_key"); the prompt alone ("prompt_text"). Everything stays within a step.
"""

from dataclasses import dataclass

import polars as pl

from ragen_diag.dumps.keys import INFERRED, of_first_turn, prompt_text

_FIRST_ROWS = 100_000
_MOST = 0.9
SOURCES = ("explicit", *INFERRED)


@dataclass(frozen=True)
class Clash:
    """Two rows with one explicit group id and different prompts, by their place among the rows."""

    first: int
    second: int


@dataclass(frozen=True)
class Grouping:
    """How the rows of a dump are grouped.

    `ids` says whether the trainer's group ids hold. `run` numbers the runs of rows with equal
    prompt within their step, for dialects that keep groups together, else None.
    """

    ids: bool
    run: pl.Series | None
    clash: Clash | None
    """Rows that contradict the ids."""
    notes: dict[str, int]


@dataclass(frozen=True)
class Numbers:
    """`number` counts rows within their group, `repeat` rows with the same sample id within their
    step (null without one); both from 0, one entry per row."""

    number: pl.Series
    repeat: pl.Series
    digest: pl.Series
    """What makes the id of a group that has none: a hash of prompt and ground truth."""
    taken: pl.Series
    """Hashes of the sample ids that the dump has."""

    @property
    def notes(self) -> dict[str, int]:
        """ "duplicate_sample_id": rows whose sample id gets a suffix."""
        doubled = int((self.repeat > 0).sum())
        return {"duplicate_sample_id": doubled} if doubled else {}


def group_rows(keys: pl.DataFrame, *, contiguous: bool) -> Grouping:
    """The grouping of the rows behind `keys`, and what was odd.

    Notes: "ids_unique_per_row" rows whose explicit ids were given up, since every row had its own
    although prompts repeat; "ids_contradict_prompts" rows whose explicit ids were given up, since
    nearly all have several prompts, and most prompts several ids; "group_id_with_several_prompts"
    explicit groups in whose first turns more than one prompt occurs.
    """
    notes: dict[str, int] = {}
    clash = None
    ids = not _ids_name_rows(keys)
    if not ids:
        notes["ids_unique_per_row"] = keys.height
    else:
        mixed = _groups_with_several_prompts(keys)
        if _ids_contradict_prompts(keys, mixed):
            ids = False
            notes["ids_contradict_prompts"] = keys.height
        elif mixed.height:
            notes["group_id_with_several_prompts"] = mixed.height
            clash = _clash(keys, mixed)
    run = of_first_turn(keys).select(_runs()).to_series() if contiguous else None
    return Grouping(ids, run, clash, notes)


def group_columns(keys: pl.DataFrame, grouping: Grouping) -> pl.DataFrame:
    """`keys` with what makes a group: rows agree in step, group, run, prompt_key and truth_key.

    The last three are null where an explicit id decides.
    """
    keys = of_first_turn(keys)
    group = pl.col("group") if grouping.ids else pl.lit(None, pl.UInt64)
    free = group.is_null()
    by_run = grouping.run is not None
    alone = pl.int_range(pl.len()) if not by_run else pl.lit(None, pl.Int64)
    run = pl.lit(grouping.run) if by_run else pl.when(pl.col("prompt").is_null()).then(alone)
    return keys.with_columns(
        group=group,
        run=pl.when(free).then(run),
        prompt_key=pl.lit(None) if by_run else pl.when(free).then("prompt"),
        truth_key=pl.lit(None) if by_run else pl.when(free).then("truth"),
    )


GROUP = ("step", "group", "run", "prompt_key", "truth_key")


def number_rows(keys: pl.DataFrame, grouping: Grouping) -> Numbers:
    """The place of every row within its group and among those of its sample id."""
    grouped = group_columns(keys, grouping)
    number = grouped.select(pl.int_range(pl.len()).over(GROUP)).to_series()
    repeat = keys.select(
        pl.when(pl.col("sample").is_not_null()).then(pl.int_range(pl.len()).over("step", "sample"))
    )
    taken = keys["sample"].cast(pl.UInt64).drop_nulls().unique()
    return Numbers(number, repeat.to_series(), of_first_turn(keys)["digest"], taken)


def with_ids(table: pl.DataFrame, grouping: Grouping, numbers: Numbers, first: int) -> pl.DataFrame:
    """`table` with `group_id`, `group_source` and `sample_id` on every row.

    Its rows stand from `first` on among those of the dump.
    """
    part = slice(first, first + table.height)
    if not grouping.ids:
        table = table.with_columns(group_id=pl.lit(None, pl.String))
    source = pl.col("group_source")
    kept = pl.when(source.is_in(SOURCES)).then(source).otherwise(pl.lit("explicit"))
    table = table.with_columns(
        group_source=pl.when(pl.col("group_id").is_not_null()).then(kept),
    )
    if grouping.run is not None:
        name, fresh = grouping.run[part].cast(pl.String), pl.lit("contiguous")
    elif table["group_id"].null_count():
        name, fresh = _names_of(numbers.digest[part], first), _source_of_key(table)
    else:
        name, fresh = pl.Series([None] * table.height, dtype=pl.String), pl.lit(None, pl.String)
    step = (pl.col("step").cast(pl.String) + ":").fill_null("")
    table = table.with_columns(
        group_id=pl.col("group_id").fill_null(step + pl.lit(name)),
        group_source=pl.col("group_source").fill_null(fresh),
    )
    return _with_sample_ids(table, numbers.number[part], numbers.repeat[part], numbers.taken)


def _ids_name_rows(keys: pl.DataFrame) -> bool:
    """Whether ids count rows: each is unique, though prompts occur twice or more on average.

    A few prompts that stand twice in a data set are not enough to give up a trainer's ids.
    """
    if keys.height < 2 or keys["group"].null_count() or not keys["unsettled"].all():
        return False
    # Mostly the first rows tell already, and all of them take a second per ten million.
    for rows in (keys.head(_FIRST_ROWS), keys):
        if rows.select("step", "group").is_duplicated().any():
            return False
    prompts = keys.select(pl.struct("step", "split", "prompt").n_unique()).item()
    return bool(prompts * 2 <= keys.height)


def _ids_contradict_prompts(keys: pl.DataFrame, mixed: pl.DataFrame) -> bool:
    """Whether ids cut across the prompts, as one that counts rows and not what they answer.

    Prompts that occur once may be turns of a trajectory that nothing tells apart: no such case.
    """
    if mixed.is_empty() or not keys["unsettled"].all():
        return False
    rows = keys.filter(_is_first_turn(keys))
    groups = rows.select(pl.struct("step", "group").n_unique()).item()
    by_prompt = rows.group_by("step", "split", "prompt").agg(pl.col("group").n_unique())
    several = by_prompt.filter(pl.col("group") > 1).height
    return bool(mixed.height >= _MOST * groups and several * 2 >= by_prompt.height)


def _is_first_turn(keys: pl.DataFrame) -> pl.Expr:
    if keys["turn"].dtype == pl.Null:
        return pl.lit(True)
    earliest = pl.col("turn").min().over("step", "trajectory")
    return pl.col("turn").is_null() | (pl.col("turn") == earliest)


def _groups_with_several_prompts(keys: pl.DataFrame) -> pl.DataFrame:
    """Step and id of the explicit groups in whose first turns more than one prompt occurs."""
    return (
        keys.lazy()
        .filter(_is_first_turn(keys) & pl.col("named") & pl.col("group").is_not_null())
        .group_by("step", "group")
        .agg(several=pl.col("prompt").min() != pl.col("prompt").max())
        .filter("several")
        .select("step", "group")
        .collect()
    )


def _clash(keys: pl.DataFrame, mixed: pl.DataFrame) -> Clash | None:
    """Two rows of a mixed group that are no turns of a trajectory, the first in the dump.

    Rewards of different prompts must not be compared as if they were of one.
    """
    prompt = pl.col("prompt")
    rows = (
        keys.with_row_index("at")
        .join(mixed, on=["step", "group"], how="semi", nulls_equal=True)
        .filter(pl.col("trajectory").is_null() & pl.col("turn").is_null(), prompt.is_not_null())
    )
    groups = (
        rows.group_by("step", "group")
        .agg(
            pl.col("at").first(), pl.col("at").filter(prompt != prompt.first()).first().alias("to")
        )
        .drop_nulls("to")
        .sort("at")
    )
    return None if groups.is_empty() else Clash(groups["at"][0], groups["to"][0])


def _runs() -> pl.Expr:
    """The run of each row among those of its step, from 0; a run ends where the file does."""
    run = pl.struct("file", "step", "prompt").rle_id()
    return run.rank("dense").over("step").cast(pl.Int64) - 1


def _source_of_key(table: pl.DataFrame) -> pl.Expr:
    has_both = pl.col("ground_truth").is_not_null() & prompt_text(table).is_not_null()
    return pl.when(has_both).then(pl.lit("derived_key")).otherwise(pl.lit("prompt_text"))


def _names_of(digest: pl.Series, first: int) -> pl.Series:
    """An id from prompt and ground truth; rows without a prompt have nothing in common."""
    alone = "row" + (pl.int_range(pl.len()) + first).cast(pl.String)
    distinct = digest.drop_nulls().unique()
    names = pl.DataFrame({"digest": distinct, "name": [f"{value:016x}" for value in distinct]})
    named = (
        digest.alias("digest")
        .cast(pl.UInt64)
        .to_frame()
        .join(
            names.with_columns(pl.col("digest").cast(pl.UInt64)),
            on="digest",
            how="left",
            maintain_order="left",
        )
    )
    return named.select(pl.col("name").cast(pl.String).fill_null(alone)).to_series()


def _with_sample_ids(
    table: pl.DataFrame, number: pl.Series, repeat: pl.Series, taken: pl.Series
) -> pl.DataFrame:
    """Rows without a sample id get one by their place in the group, repeats a suffix."""
    numbered = pl.col("group_id") + "#" + pl.lit(number).cast(pl.String)
    suffixed = pl.col("sample_id") + "#" + pl.lit(repeat).cast(pl.String)
    given = pl.when(pl.lit(repeat) > 0).then(suffixed).otherwise("sample_id").fill_null(numbered)
    ids = table.select(given.alias("sample_id")).to_series()
    made = table["sample_id"].is_null() | (repeat > 0).fill_null(False)
    while (clash := made & ids.hash().is_in(taken.implode())).any():
        ids = (ids + "#").zip_with(clash, ids)
    return table.with_columns(ids)
