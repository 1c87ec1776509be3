"""What a dialect is: how one trainer's columns are known, and what they are called here.

A dialect only says which column is which; typing, steps, groups and ids are the same for all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import polars as pl

from ragen_diag.dumps.raw import RawTable
from ragen_diag.dumps.rewards import Reward


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The rows of one file under canonical column names, values as the trainer wrote them."""

    columns: Mapping[str, pl.Series]
    """Canonical name -> column of the file; names that are absent become nulls."""
    reward: Reward | None
    """None when the file has no reward column."""
    candidates: tuple[str, ...]
    """Names that the `reward` option could take."""
    extra: tuple[str, ...] = ()
    """Columns of the file that are kept as JSON."""
    notes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One way to write a dump.

    A file belongs to the dialect when its columns include one of the `signatures`; where several
    dialects match, the one whose signature includes the others' is meant. `draft` takes the file
    and the `reward` option.
    """

    name: str
    signatures: tuple[frozenset[str], ...]
    draft: Callable[[RawTable, str | None], Draft]
    contiguous: bool = False
    """Whether a group without id is a run of rows with equal prompt (never so if rows move)."""

    def signature_in(self, columns: frozenset[str]) -> frozenset[str] | None:
        """The largest signature among `columns`, or None when the file is of another dialect."""
        found = [signature for signature in self.signatures if signature <= columns]
        return max(found, key=len) if found else None
