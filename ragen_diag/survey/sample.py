"""A seeded sample of the rows of a dump, drawn while its batches go by. Knows no facts.

Every row draws a number; the rows with the smallest ones stay. So the sample is the same however
the dump falls into batches, and no more than twice its size is ever held.
"""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

MOST = 2000

_SCHEMA = {
    "prompt": pl.String,
    "response": pl.String,
    "finish_reason": pl.String,
    "prompt_tokens": pl.UInt32,
    "response_tokens": pl.UInt32,
    "largest_id": pl.Int32,
}


@dataclass
class Drawn:
    """At most `most` rows; `split` leaves the rows of all others out."""

    split: str | None = None
    most: int = MOST
    seed: int = 0
    _rng: np.random.Generator = field(init=False, repr=False)
    _parts: list[pl.DataFrame] = field(default_factory=list, init=False, repr=False)
    _bound: float = field(default=1.0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def add(self, table: pl.DataFrame) -> None:
        """The rows of a batch take their chance."""
        if self.split is not None:
            table = table.filter(pl.col("split") == self.split)
        draws = self._rng.random(table.height)
        places = np.flatnonzero(draws < self._bound)
        places = places[np.argsort(draws[places])[: self.most]]
        if places.size:
            ids = [pl.col("prompt_ids"), pl.col("response_ids")]
            taken = table[places].select(
                "prompt",
                "response",
                "finish_reason",
                ids[0].list.len().alias("prompt_tokens"),
                ids[1].list.len().alias("response_tokens"),
                pl.max_horizontal(column.list.max() for column in ids).alias("largest_id"),
                pl.Series("draw", draws[places]),
            )
            # Made anew: a slice of texts keeps those of its whole batch in memory.
            self._parts.append(pl.DataFrame(taken.to_dict(as_series=False), schema=taken.schema))
        if sum(part.height for part in self._parts) > 2 * self.most:
            self._trim()

    def table(self) -> pl.DataFrame:
        """The rows in the order of their numbers: prompt, response and finish_reason, the lengths
        of their ids (`prompt_tokens`, `response_tokens`) and the largest id, null without ids."""
        self._trim()
        rows = self._parts[0] if self._parts else pl.DataFrame(schema=_SCHEMA)
        return rows.select(*_SCHEMA)

    def _trim(self) -> None:
        if self._parts:
            rows = pl.concat(self._parts).sort("draw").head(self.most)
            self._parts = [rows]
            if rows.height == self.most:
                self._bound = float(rows["draw"][-1])
