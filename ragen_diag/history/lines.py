"""A file of JSON lines -> its rows. One object a line, as most trainers' file loggers write.

verl's file logger wraps a row as `{"step": 5, "data": {...}}`; that wrapping is undone. Lines are
read one at a time, so a log may be larger than memory.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ragen_diag.history.rows import Entry, Row, stepped
from ragen_diag.history.tally import Damage, Tally

_MAX_LINE = 16 * 2**20
_BOM = b"\xef\xbb\xbf"
_EXACT_DIGITS = 19


def read(path: Path, tally: Tally) -> Iterator[Entry]:
    """The rows of a file, in its order.

    Raises:
        HistoryError: more than a tenth of the lines is no JSON object; no row has a step.
    """
    return stepped(path, _rows(path, tally), tally)


def parsed(text: str) -> object:
    """A JSON text; numbers of any length, and `NaN` and `Infinity`, which Python writes, pass.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it nests too deep.
    """
    return json.loads(text, parse_int=_integer)


def _rows(path: Path, tally: Tally) -> Iterator[Row]:
    damage = Damage(path, "line")
    torn = False
    with path.open("rb") as stream:
        for number, line in enumerate(_lines(stream), start=1):
            if not line.strip():
                continue
            damage.rows += 1
            row = _row(line)
            if row is not None:
                yield row
            else:
                damage.met(number)
                torn = not line.endswith(b"\n")
    damage.settle(tally, torn=torn)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines; for one beyond 16 MiB, which no row of numbers fills, one that does not parse."""
    first = True
    while line := stream.readline(_MAX_LINE):
        rest = line
        while len(rest) == _MAX_LINE and not rest.endswith(b"\n"):
            rest = stream.readline(_MAX_LINE)
            line = b"?\n"
        yield line.removeprefix(_BOM) if first else line
        first = False


def _row(line: bytes) -> Row | None:
    try:
        row = parsed(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    data = row.get("data")
    if row.keys() == {"step", "data"} and isinstance(data, dict):
        return {**data, "step": row["step"]}
    return row


def _integer(text: str) -> int | float:
    """Beyond what a step can need, digits only cost time."""
    return int(text) if len(text) <= _EXACT_DIGITS else float(text)
