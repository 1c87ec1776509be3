"""One file's draft -> rows of the canonical table, every value in its type.

What had to be repaired is flagged on the row. Knows neither formats nor dialects.
"""

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from ragen_diag.dumps import columns
from ragen_diag.dumps.dialect import Draft
from ragen_diag.dumps.jsontext import as_json
from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.rewards import Reward
from ragen_diag.dumps.steps import fill_steps, split_of_path
from ragen_diag.rollouts import SCHEMA

Flagged = tuple[pl.Series, pl.Series | None]

IDENTIFIERS = ("group_id", "sample_id", "trajectory_id")
_ID_COLUMNS = ("prompt_ids", "response_ids")
_REWARD_FLAGS = ("null_reward", "nan_reward", "bad_reward")


def assemble(
    raw: RawTable, draft: Draft, reward: Reward | None, *, step_in_name: bool = True
) -> pl.DataFrame:
    """The rows of one batch with exactly the columns of SCHEMA; group and sample ids may be null.

    `reward` is None where the batch has no reward at all; `step_in_name` says whether files are
    named after their step.

    Raises:
        DumpError: the step column and the file's name disagree.
    """
    given = dict(draft.columns)
    cells: dict[str, pl.Series] = {}
    flags = [] if reward is None else [reward.flag]
    _take_conversations(given, cells, flags)
    _take_tokens(given, cells, flags)
    for name, values in given.items():
        if name in _READ:
            if name in IDENTIFIERS and values.name in raw.mixed_columns:
                values = _whole_numbers(values)
            cells[name], flag = _READ[name](values)
            flags += [] if flag is None else [flag]
    if "reward_components" not in cells:
        parts = [raw.frame[name] for name in draft.parts]
        parts += [] if reward is None else reward.parts
        cells["reward_components"] = columns.as_components(parts, raw.frame.height)
    cells["reward"] = _nulls("reward", raw) if reward is None else reward.value
    if reward is None:
        flags.append(pl.repeat("null_reward", raw.frame.height, eager=True))
    cells["extra"] = _extra(raw, draft, cells.get("extra"))
    _fill_by_place(raw, cells, step_in_name)
    nothing = [cells.get(n, _nulls(n, raw)).is_null() for n in ("response", "response_ids")]
    flags.append(_where(nothing[0] & nothing[1], "null_response"))
    if "finish_reason" not in cells:
        unknown = pl.Series("finish_reason", ["unknown"])
        cells["finish_reason"] = unknown.new_from_index(0, raw.frame.height)
    cells["_flags"] = _merged_flags(cells.get("_flags"), raw.flags, flags)
    return pl.DataFrame(
        [
            cells.get(name, _nulls(name, raw)).cast(dtype).alias(name)
            for name, dtype in SCHEMA.items()
        ]
    )


def _fill_by_place(raw: RawTable, cells: dict[str, pl.Series], step_in_name: bool) -> None:
    """Fills file and row, and step and split by the names of file and folders."""
    # A table that was converted knows the file of each row; its own name says nothing of them.
    converted = "_file" in cells
    if converted:
        cells["_file"] = cells["_file"].fill_null(str(raw.path))
        cells["_row"] = cells.get("_row", _nulls("_row", raw)).fill_null(raw.row)
        return
    path = pl.Series("_file", [str(raw.path)])
    cells["_file"] = path.new_from_index(0, raw.frame.height)
    cells["_row"] = cells["_row"].fill_null(raw.row) if "_row" in cells else raw.row
    step = cells.get("step", _nulls("step", raw))
    cells["step"] = fill_steps(step, raw.row, raw.place, by_name=step_in_name)
    if (split := split_of_path(raw.place)) is not None:
        cells["split"] = cells.get("split", _nulls("split", raw)).fill_null(split)


def _take_conversations(
    given: dict[str, pl.Series], cells: dict[str, pl.Series], flags: list[pl.Series]
) -> None:
    """Moves chat messages out of prompt and messages, whichever hold some."""
    for name in ("prompt", "messages"):
        read = columns.conversations(given[name]) if name in given else None
        if read is not None:
            cells["messages"], flag = read
            flags.append(flag)
            del given[name]


def _take_tokens(
    given: dict[str, pl.Series], cells: dict[str, pl.Series], flags: list[pl.Series]
) -> None:
    """Moves ids and log-probs of tokens; a row with ids that are none keeps its texts alone."""
    read = {name: columns.token_ids(given.pop(name)) for name in _ID_COLUMNS if name in given}
    if read:
        masks = pl.DataFrame([bad.alias(name) for name, (_, bad) in read.items()])
        bad = masks.select(pl.any_horizontal(pl.all())).to_series()
        cells |= {name: _without(ids, bad) for name, (ids, _) in read.items()}
        flags.append(_where(bad, "bad_token_ids"))
    if "rollout_logprobs" in given:
        logprobs, bad = columns.logprobs(given.pop("rollout_logprobs"))
        if "response_ids" in cells:
            other_length = logprobs.list.len() != cells["response_ids"].list.len()
            bad |= other_length.fill_null(False)
        cells["rollout_logprobs"] = _without(logprobs, bad)
        flags.append(_where(bad, "bad_rollout_logprobs"))


def _extra(raw: RawTable, draft: Draft, existing: pl.Series | None) -> pl.Series:
    """One JSON object per row of all columns that have no other place; null when there is none."""
    if not draft.extra:
        return _nulls("extra", raw) if existing is None else existing
    parts = _members(raw, draft.extra)
    if existing is not None:
        inside = existing.str.strip_chars().str.extract(r"(?s)^\{\s*(.+?)\s*\}$")
        parts = pl.DataFrame([inside.alias("existing"), *parts])
    members = pl.concat_str(pl.all(), separator=",", ignore_nulls=True)
    return parts.select(
        pl.when(pl.any_horizontal(pl.all().is_not_null())).then(
            pl.concat_str(pl.lit("{"), members, pl.lit("}"))
        )
    ).to_series()


def _members(raw: RawTable, names: Sequence[str]) -> pl.DataFrame:
    """`"name": value` as JSON for each of the columns, null where the value is.

    Columns go by numbers, as the table engine would take a name such as "^.*$" for a pattern, and
    all at once, as there may be thousands.
    """
    cells: list[pl.Series] = []
    members: list[pl.Expr] = []
    for number, name in enumerate(names):
        values, text = raw.frame[name], pl.col(str(number))
        there = text.is_not_null()
        plain = values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.String)
        if plain and name not in raw.json_columns:
            whole = pl.struct(text.alias("")).struct.json_encode()
            text = whole.str.slice(len('{"":'), whole.str.len_chars() - len('{"":}'))
        elif name not in raw.json_columns:
            given = [None if value is None else as_json(value) for value in values.to_list()]
            values = pl.Series(given, dtype=pl.String)
        cells.append(values.alias(str(number)))
        members.append(pl.when(there).then(pl.lit(f"{as_json(name)}:") + text).alias(str(number)))
    return pl.DataFrame(cells).select(members)


def _merged_flags(
    earlier: pl.Series | None, raw_flags: pl.Series, flags: list[pl.Series]
) -> pl.Series:
    fresh = [flag.cast(pl.String) for flag in flags if flag.null_count() < len(flag)]
    if earlier is None and not fresh:
        return raw_flags
    kept = pl.repeat([], len(raw_flags), dtype=pl.List(pl.String), eager=True)
    frame = pl.DataFrame([flag.alias(str(i)) for i, flag in enumerate(fresh)])
    news = kept if not fresh else frame.select(pl.concat_list(pl.all()).list.drop_nulls())
    merged = pl.DataFrame(
        {
            "kept": kept if earlier is None else earlier.fill_null([]),
            "fresh": news if isinstance(news, pl.Series) else news.to_series(),
            "raw": raw_flags,
        }
    )
    # A table that was converted knows better than its nulls why a reward is missing.
    knows = pl.col("kept").list.set_intersection(list(_REWARD_FLAGS)).list.len() > 0
    told = pl.when(knows).then(pl.col("fresh").list.set_difference(["null_reward"]))
    return merged.select(
        pl.concat_list("kept", told.otherwise("fresh"), "raw").list.unique(maintain_order=True)
    ).to_series()


def _nulls(name: str, raw: RawTable) -> pl.Series:
    return pl.Series(name, [None], dtype=SCHEMA[name]).new_from_index(0, raw.frame.height)


def _without(values: pl.Series, mask: pl.Series) -> pl.Series:
    return pl.select(pl.when(~pl.lit(mask)).then(pl.lit(values))).to_series()


def _where(mask: pl.Series, flag: str) -> pl.Series:
    return pl.select(pl.when(pl.lit(mask)).then(pl.lit(flag))).to_series()


def _integers(flag: str, dtype: type[pl.DataType] = pl.Int64) -> Callable[[pl.Series], Flagged]:
    def read(values: pl.Series) -> Flagged:
        whole, bad = columns.integers(values, dtype)
        return whole, _where(bad, flag)

    return read


def _whole_numbers(values: pl.Series) -> pl.Series:
    """Ids of a column that knows text alone, in which a whole float is its integer."""
    return values.str.replace(r"^(-?\d{1,15})\.0$", "${1}")


def _identifiers(values: pl.Series) -> Flagged:
    ids, vague = columns.identifiers(values)
    return ids, _where(vague, "imprecise_id")


def _texts(values: pl.Series) -> Flagged:
    text = columns.texts(values)
    if values.dtype != pl.Binary:
        return text, None
    return text, _where(text.str.contains("\ufffd", literal=True), "invalid_utf8")


def _advantages(values: pl.Series) -> Flagged:
    value, reason = columns.numbers(values)
    return value, (reason + "_advantage").set(reason == "null", None)


def _components(values: pl.Series) -> Flagged:
    named, bad = columns.components(values)
    return named, _where(bad, "bad_components")


def _earlier_flags(values: pl.Series) -> Flagged:
    if values.dtype in (pl.List(pl.String), pl.List(pl.Null)):
        return values.cast(pl.List(pl.String)), None
    nothing = pl.Series([None] * len(values), dtype=pl.List(pl.String))
    return nothing, _where(values.is_not_null(), "bad_flags")


def _finish_reasons(values: pl.Series) -> Flagged:
    reasons, unknown = columns.finish_reasons(values)
    return reasons, _where(unknown, "unknown_finish_reason")


_READ: Mapping[str, Callable[[pl.Series], Flagged]] = {
    "step": _integers("bad_step"),
    "group_id": _identifiers,
    "group_source": _texts,
    "sample_id": _identifiers,
    "trajectory_id": _identifiers,
    "turn": _integers("bad_turn", pl.Int32),
    "split": _texts,
    "prompt": _texts,
    "response": _texts,
    "reward_components": _components,
    "advantage": _advantages,
    "ground_truth": _texts,
    "finish_reason": _finish_reasons,
    "env": _texts,
    "extra": _texts,
    "_file": _texts,
    "_row": _integers("bad_row", pl.UInt32),
    "_flags": _earlier_flags,
}
