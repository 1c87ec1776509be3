"""The steps of a run to look into: some groups of each with some of their responses.

Comes in: what is kept of a step. Goes out: texts for the report, unescaped, few enough for one
page. Measures and words nothing.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from ragen_diag.pipeline.run.store import Kept
from ragen_diag.pipeline.run.walk import Walked
from ragen_diag.postmortem.model import SampleRecord
from ragen_diag.report.story import GroupDetail, StepDetail

MOST_STEPS = 60
KEY_GROUPS, KEY_ROWS = 12, 3
OTHER_GROUPS, OTHER_ROWS = 4, 2


def step_details(walked: Walked, keys: Mapping[int, str]) -> tuple[StepDetail, ...]:
    """The steps of `keys` (step -> why it matters) in depth, and as many others as have room."""
    steps = [point.step for point in walked.points]
    others = [step for step in steps if step not in keys][: max(0, MOST_STEPS - len(keys))]
    return tuple(
        _detail(walked.kept(step), step, keys.get(step, "")) for step in sorted({*keys, *others})
    )


def _detail(kept: Kept, step: int, why: str) -> StepDetail:
    groups, rows = (KEY_GROUPS, KEY_ROWS) if why else (OTHER_GROUPS, OTHER_ROWS)
    table = rows_of(kept)
    gaps = table.group_by("group_id", maintain_order=True).agg(gap=pl.col("gap").mean())
    ranked = kept.groups.join(gaps, on="group_id", how="left", maintain_order="left")
    chosen = _ends(ranked.sort("gap", nulls_last=True, maintain_order=True), groups)
    return StepDetail(
        step=step,
        why=why,
        groups_in_all=kept.groups.height,
        groups=tuple(_group(row, table, rows) for row in chosen.iter_rows(named=True)),
    )


def _ends(ranked: pl.DataFrame, most: int) -> pl.DataFrame:
    """The least grounded, and some of the most grounded."""
    if ranked.height <= most:
        return ranked
    best = most // 3
    return pl.concat([ranked.head(most - best), ranked.tail(best)])


def _group(group: Mapping[str, object], table: pl.DataFrame, most: int) -> GroupDetail:
    own = table.filter(pl.col("group_id") == group["group_id"])
    return GroupDetail(
        group_id=str(group["group_id"]),
        prompt=own["prompt"][0] or "",
        responses=own.height,
        reward_mean=_number(group["reward_mean"]),
        reward_var=_number(group["reward_var"]),
        flat=None if group["flat"] is None else str(group["flat"]),
        gap=_number(group["gap"]),
        rows=samples(own.head(most)),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, float | int) else None


def rows_of(kept: Kept) -> pl.DataFrame:
    """A row per response: its texts, its reasoning, `reward` and `gap` = matched - marginal."""
    told = kept.responses.select("response_id", "group_id", "reward", "matched", "marginal")
    joined = told.join(kept.texts, on="response_id", how="left", maintain_order="left")
    length = pl.col("end") - pl.col("start")
    return joined.with_columns(
        gap=pl.col("matched") - pl.col("marginal"),
        reasoning=pl.col("response").str.slice(pl.col("start"), length),
    )


def samples(rows: pl.DataFrame) -> tuple[SampleRecord, ...]:
    """Rows of `rows_of` as the post-mortem keeps them."""
    columns = ("response_id", "prompt", "response", "start", "end", "reward", "gap")
    return tuple(_sample(row) for row in rows.select(columns).iter_rows(named=True))


def _sample(row: Mapping[str, object]) -> SampleRecord:
    texts = {name: row[name] or "" for name in ("prompt", "response")}
    return SampleRecord.model_validate({**row, **texts})


def by_id(kept: Kept, response_ids: Sequence[str]) -> tuple[SampleRecord, ...]:
    """Some responses of a step, in the order asked for."""
    rows = {sample.response_id: sample for sample in samples(rows_of(kept))}
    return tuple(rows[name] for name in response_ids)
