"""A CSV file -> its rows: a table with a step column, or an export of W&B's charts.

W&B writes `run - train/reward` with `__MIN` and `__MAX` beside it. The two are left out, and the
name of the run too if it is the only one. Empty cells mean that nothing was logged there.
"""

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from ragen_diag.errors import HistoryError
from ragen_diag.history.rows import OWN_COUNTER, STEP_KEYS, Entry, Row, stepped
from ragen_diag.history.tally import MIN_MAX, REPEATED_COLUMN, UNNAMED_COLUMN, Damage, Tally

_DELIMITERS = ",;\t"
_RUN = " - "


def read(path: Path, tally: Tally) -> Iterator[Entry]:
    """The rows of a file, in its order.

    Raises:
        HistoryError: no header; more than a tenth of the lines does not fit it; no row has a step.
    """
    return stepped(path, _rows(path, tally), tally)


def _rows(path: Path, tally: Tally) -> Iterator[Row]:
    damage = Damage(path, "line")
    last = 0
    with path.open(encoding="utf-8-sig", errors="backslashreplace", newline="") as stream:
        table = _cells(stream)
        _, header = next(table, (0, None))
        if not header:
            raise HistoryError(
                f"{path}: no line with the names of the columns; write one, with a column 'step'"
            )
        names = _names(header, tally)
        for last, cells in table:
            damage.rows += 1
            if cells is None or len(cells) != len(names):
                damage.met(last)
            else:
                yield {name: cell for name, cell in zip(names, cells, strict=True) if name and cell}
    damage.settle(tally, torn=damage.bad_rows[-1:] == [last] and not _ends_a_line(path))


def _cells(stream: TextIO) -> Iterator[tuple[int, list[str] | None]]:
    """The number of a line and its cells, None for what is no CSV; empty lines are passed over."""
    delimiter = max(_DELIMITERS, key=stream.readline().count)
    stream.seek(0)
    table = csv.reader(stream, delimiter=delimiter)
    while True:
        try:
            cells = next(table)
        except StopIteration:
            return
        except csv.Error:
            yield table.line_num, None
            continue
        if cells:
            yield table.line_num, cells


def _names(header: list[str], tally: Tally) -> list[str]:
    """A name for each column, empty for one that is left out."""
    names = [cell.strip() for cell in header]
    runs = {name.rpartition(_RUN)[0] for name in names if _as_key(name) not in STEP_KEYS}
    of_one_run = len(runs) == 1 and runs != {""}
    if of_one_run:
        names = [name.rpartition(_RUN)[2] for name in names]
    renamed: list[str] = []
    for name in names:
        key = OWN_COUNTER if of_one_run and name == "Step" else _as_key(name)
        base = name.removesuffix("__MIN").removesuffix("__MAX")
        if base != name and base in names:
            tally.left_out[MIN_MAX] += 1
            renamed.append("")
        elif not key or key in renamed:
            tally.left_out[REPEATED_COLUMN if key else UNNAMED_COLUMN] += 1
            renamed.append("")
        else:
            renamed.append(key)
    return renamed


def _as_key(name: str) -> str:
    """Steps are counted by columns called `Step` and `Global_Step` too."""
    return name.lower() if name.lower() in STEP_KEYS else name


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() in (b"\n", b"\r")
