"""Dump files of any known dialect -> `Rollouts`, the canonical table.

A new dialect is one file in `dialects/` and one line in its registry. Knows no models.
"""

from collections.abc import Sequence
from pathlib import Path

from ragen_diag.dumps.dialects import DIALECTS, GENERIC
from ragen_diag.dumps.dump import Dump, open_dump
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import Reading

__all__ = ["DIALECTS", "GENERIC", "Dump", "open_dump", "read_dump"]


def read_dump(paths: Sequence[str | Path], *, reading: Reading | None = None) -> Rollouts:
    """The rows of all dump files behind `paths`, files in natural order, rows as written.

    Rows without a usable reward, and everything else that was repaired, stay in and are counted in
    `notes`.

    Raises:
        DumpError: a file is missing, unreadable or of no known dialect; files of different
            dialects; no reward column; no rows; a step that column and name put differently; a
            group id of several prompts; a step that was written twice.
        UsageError: a name in `reading` is none.
    """
    return open_dump(paths, reading or Reading()).rollouts()
