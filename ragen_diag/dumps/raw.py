"""A dump file -> its rows as a typed table under the file's own column names.

Knows file formats, no dialects: what a column means is decided elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from ragen_diag.errors import DumpError


@dataclass(frozen=True)
class RawTable:
    """The rows of one file as they were written.

    `row` numbers them from 1: the row of a Parquet file, the line of a JSON-lines file. `flags`
    lists per row what had to be repaired. `json_columns` are text columns that hold JSON, since
    their values were objects or uneven lists.
    """

    path: Path
    frame: pl.DataFrame
    row: pl.Series
    flags: pl.Series
    json_columns: frozenset[str] = frozenset()
    notes: Mapping[str, int] = field(default_factory=dict)


def read_parquet(path: Path) -> RawTable:
    """All rows of a Parquet file. Index columns that pandas adds are left out.

    Raises:
        DumpError: the file cannot be decoded, for example because its end is missing.
    """
    try:
        # The path is literal: no globbing, and no column is invented from a `key=value` folder.
        frame = pl.read_parquet(path, glob=False, hive_partitioning=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DumpError(
            f"{path}: cannot be read as Parquet ({reason}); was the writer interrupted? write the"
            " file again or leave it out"
        ) from error
    frame = frame.select(pl.exclude("^__index_level_.*$"))
    return RawTable(
        path=path,
        frame=frame,
        row=pl.Series("_row", range(1, frame.height + 1), dtype=pl.Int64),
        flags=pl.Series("_flags", [[]] * frame.height, dtype=pl.List(pl.String)),
    )
