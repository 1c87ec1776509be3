"""Keys of rows -> where they stand, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ragen_diag.survey.facts import MOST_PLACES


@dataclass(frozen=True)
class Places:
    """The files of a dump, in the order by which keys know them."""

    files: Sequence[Path | str]

    def of(self, keys: pl.DataFrame) -> list[str]:
        """The first few rows of `keys`, as FILE row N."""
        first = keys.select("file", "row").head(MOST_PLACES)
        return [f"{self.files[file]} row {row}" for file, row in first.iter_rows()]

    def of_step(self, keys: pl.DataFrame, step: int | None) -> list[str]:
        """The first few files that hold rows of a step."""
        rows = keys.filter(pl.col("step").eq_missing(pl.lit(step, pl.Int64)))
        files = rows["file"].unique(maintain_order=True).head(MOST_PLACES)
        return [str(self.files[file]) for file in files]
