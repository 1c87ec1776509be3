"""What a dialect is: how one trainer's dump is known, and what its columns are called here.

A dialect only says which column is which; typing, rewards, steps, groups and ids are the same for
all. One whose records hold whole episodes first takes them apart into rows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from ragen_diag.dumps.raw import RawTable, Record

PLACE = "_place"
"""Key under which `unfold` finds where the record stands, as "FILE:NUMBER", which no other record
of the dump shares: the id of what has none, or of a group that nesting alone tells."""
SKIPPED = "_skipped"
"""A row with this key alone stands for something left out, by reason: to be counted, not kept."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The rows of one batch under canonical column names, values as the trainer wrote them."""

    columns: Mapping[str, pl.Series]
    """Canonical name -> column of the file; names that are absent become nulls."""
    reward: str | None
    """The dialect's own reward column; None when the file has none."""
    summed: tuple[str, ...] = ()
    """Reward functions whose sum is the reward where there is no column for it."""
    parts: tuple[str, ...] = ()
    """Columns of numbers that become reward components."""
    extra: tuple[str, ...] = ()
    """Columns that are kept as JSON."""
    notes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One way to write a dump.

    A file belongs to the dialect when its columns include one of the `signatures`; where several
    dialects match, the one whose signature includes the others' is meant. It surely does when it
    also has one of the `telling` columns, which nobody else writes.

    `unfold` takes a record apart into flat rows before they become a table; columns that it makes
    may carry canonical names. `draft` names the columns of such a table.
    """

    name: str
    signatures: tuple[frozenset[str], ...]
    draft: Callable[[RawTable], Draft]
    unfold: Callable[[Record], Iterable[Record]] | None = None
    telling: frozenset[str] = frozenset()
    contiguous: bool = False
    """Whether a group without id is a run of rows with equal prompt (never so if rows move)."""
    file_names_step: bool = True
    """Whether a file that is named by a number is named by its step."""
    drops_copies: bool = False
    """Whether rows that equal an earlier one in everything are padding, and left out."""

    def signature_in(self, columns: frozenset[str]) -> frozenset[str] | None:
        """The largest signature among `columns`, or None when the file is of another dialect."""
        found = [signature for signature in self.signatures if signature <= columns]
        return max(found, key=len) if found else None


def draft_by_functions(
    raw: RawTable, names: Mapping[str, str], is_function: Callable[[pl.Series], bool]
) -> Draft:
    """The draft of a dialect with a column for each reward function: `names` is column of the file
    -> canonical name.

    Without a column that is called "reward" the sum of the functions is the reward. Whatever is no
    function is kept as JSON.
    """
    frame = raw.frame
    others = [name for name in frame.columns if name not in names and name != "reward"]
    functions = tuple(name for name in others if is_function(frame[name]))
    has_total = "reward" in frame.columns
    return Draft(
        columns={new: frame[old] for old, new in names.items() if old in frame.columns},
        reward="reward" if has_total else None,
        summed=() if has_total else functions,
        parts=functions,
        extra=tuple(name for name in others if name not in functions),
    )


def draft_by_names(
    raw: RawTable,
    names: Mapping[str, str],
    *,
    reward: tuple[str, ...] = (),
    parts: Callable[[pl.Series], bool] | None = None,
    dropped: frozenset[str] = frozenset(),
) -> Draft:
    """The draft of a dialect that only renames: `names` is column of the file -> canonical name.

    The first of `reward` that is there is the reward. Of the other columns, those for which
    `parts` holds are components, those of `dropped` say nothing new, the rest is kept as JSON.
    """
    frame = raw.frame
    there = [name for name in frame.columns if name not in dropped]
    chosen = next((name for name in reward if name in there), None)
    others = [name for name in there if name not in names and name != chosen]
    components = [name for name in others if parts is not None and parts(frame[name])]
    return Draft(
        columns={new: frame[old] for old, new in names.items() if old in there},
        reward=chosen,
        parts=tuple(components),
        extra=tuple(name for name in others if name not in components),
    )
