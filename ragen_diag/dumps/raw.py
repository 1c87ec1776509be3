"""What files give and dialects take: single records, and batches of rows as a typed table.

Columns are under the file's own names. Knows neither files nor dialects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import polars as pl

Record = dict[str, Any]
"""One JSON object."""


@dataclass(frozen=True)
class RawTable:
    """Consecutive rows of one file as they were written.

    `row` numbers them from 1 within the file: the row of a table, the line of a JSON-lines file.
    Rows that stand in one record have the same number. `flags` lists per row what had to be
    repaired. `json_columns` are text columns that hold JSON, since their values were objects or
    uneven lists.
    """

    path: Path | str
    frame: pl.DataFrame
    row: pl.Series
    flags: pl.Series
    json_columns: frozenset[str] = frozenset()
    mixed_columns: frozenset[str] = frozenset()
    """Text columns whose values were of several types, or of a format that knows text alone."""
    notes: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> PurePath:
        """The path as one whose parts can be asked for, also where it is a URL."""
        return PurePath(str(self.path))
