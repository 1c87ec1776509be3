"""The groups of a dump in numbers, and what speaks against them."""

from collections.abc import Mapping

import polars as pl

from ragen_diag.dumps.decisions import Decided
from ragen_diag.survey.facts import GroupSizes, Problem, problem
from ragen_diag.survey.places import Places

_HALF = 0.5
"""Share of the groups from which on their commonest size is taken for the one that was meant."""


def group_sources(decided: Decided) -> dict[str, int]:
    """Rows by the way their group was found, as the canonical table would say."""
    keys, grouping = decided.keys, decided.grouping
    found: dict[str, int] = {}
    rest = keys
    if grouping.ids:
        found["explicit"] = int(keys["named"].sum())
        found |= {str(s): n for s, n in keys["source"].drop_nulls().value_counts().iter_rows()}
        rest = keys.filter(pl.col("group").is_null()) if keys["group"].null_count() else keys[:0]
    if grouping.run is not None:
        fresh = {"contiguous": rest.height}
    else:
        both = rest.select((pl.col("truth").is_not_null() & pl.col("prompt").is_not_null()).sum())
        fresh = {"derived_key": both.item(), "prompt_text": rest.height - both.item()}
    for source, rows in fresh.items():
        found[source] = found.get(source, 0) + rows
    return {source: rows for source, rows in sorted(found.items()) if rows}


def group_sizes(groups: pl.DataFrame) -> GroupSizes:
    """The sizes of the groups of a `group_table`, of which there is at least one."""
    counted = groups["size"].value_counts().sort("size")
    sizes = {int(size): int(n) for size, n in counted.iter_rows()}
    usual = max(sizes, key=lambda size: (sizes[size], size))
    # A null says that there is no prompt, not that there are several.
    several = int((~groups["one_prompt"]).fill_null(False).sum())
    shared = groups.drop_nulls("prompt").group_by("step", "prompt").len().filter(pl.col("len") > 1)
    return GroupSizes(
        smallest=min(sizes),
        median=float(groups["size"].median() or 0),  # type: ignore[arg-type]
        largest=max(sizes),
        usual=usual,
        uneven=groups.height - sizes[usual],
        singletons=sizes.get(1, 0),
        sizes={str(size): n for size, n in sizes.items()},
        with_several_prompts=several,
        prompts_in_several=shared.height,
    )


def group_problems(
    sizes: GroupSizes,
    sources: Mapping[str, int],
    groups: pl.DataFrame,
    keys: pl.DataFrame,
    places: Places,
) -> list[Problem]:
    """What speaks against the groups; `keys` are those of the rows that stay."""
    found = []
    if rows := sources.get("prompt_text"):
        found.append(
            problem(
                "groups_by_prompt_text",
                "warning",
                f"{rows:,} rows were grouped by equal prompt text alone, so that two tasks with"
                " one prompt are one group; name their id, as in --map group_id=COLUMN",
            )
        )
    if sizes.largest == 1:
        found.append(
            problem(
                "all_singletons",
                "warning",
                f"no group holds more than one response ({groups.height:,} groups), so that no"
                " rewards can be compared; log every response (TRL: log_unique_prompts=False), or"
                " name the prompts' id, as in --map group_id=COLUMN",
            )
        )
        return found
    found += _odd_sizes(sizes, sources, groups, keys, places)
    if sizes.prompts_in_several and "explicit" in sources:
        found.append(
            problem(
                "prompt_in_several_groups",
                "note",
                f"{sizes.prompts_in_several:,} prompts have several group ids in one step; their"
                " groups stay apart for rewards, and are one column for retrieval",
            )
        )
    return found


def _odd_sizes(
    sizes: GroupSizes,
    sources: Mapping[str, int],
    groups: pl.DataFrame,
    keys: pl.DataFrame,
    places: Places,
) -> list[Problem]:
    """Groups that were merged or cut, where one size seems to be meant; else that sizes differ."""
    usual = sizes.usual
    inferred = set(sources) != {"explicit"}
    meant = inferred and usual > 1 and sizes.uneven < _HALF * groups.height
    if not meant:
        return [_uneven(sizes, groups)] if sizes.uneven else []
    is_double = (pl.col("size") > usual) & (pl.col("size") % usual == 0)
    doubled = groups.filter(is_double)
    others = groups.filter(~is_double & (pl.col("size") != usual))
    found = []
    if doubled.height:
        found.append(
            problem(
                "groups_merged",
                "warning",
                f"{doubled.height:,} of {groups.height:,} groups are a multiple of the usual size"
                f" {usual}, as if their prompt had been sampled twice: their rewards are compared"
                " as one group's; name the id that tells them apart, as in --map group_id=COLUMN",
                places.of(keys[doubled["at"]]),
            )
        )
    if others.height and "contiguous" in sources:
        found.append(
            problem(
                "partial_groups",
                "warning",
                f"{others.height:,} of {groups.height:,} groups are not of the usual size"
                f" {usual}, as if only a part of the batch had been logged; leave such groups out,"
                " or log whole batches",
                places.of(keys[others["at"]]),
            )
        )
    elif others.height:
        found.append(_uneven(sizes, groups))
    return found


def _uneven(sizes: GroupSizes, groups: pl.DataFrame) -> Problem:
    message = (
        f"groups differ in size: {sizes.smallest} to {sizes.largest}, {sizes.uneven:,} of"
        f" {groups.height:,} other than the usual {sizes.usual}"
    )
    if sizes.singletons:
        message += f"; {sizes.singletons:,} of one response have no variance"
    return problem("uneven_groups", "note", message)
