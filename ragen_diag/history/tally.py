"""What reading a log leaves out or repairs, counted by reason, and what it counted steps by."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ragen_diag.errors import HistoryError

# Rows: a line of a file, a record of an event file or of a W&B run.
NO_STEP = "no_step"
UNREADABLE = "unreadable_row"
TORN = "torn_last_row"
# Values: one quantity at one step.
UNDEFINED = "undefined"
NOT_A_NUMBER = "not_a_number"
LOGGED_AGAIN = "logged_again"
BEFORE_A_RESUME = "before_a_resume"
# Columns, names and files.
IN_A_SUBFOLDER = "log_in_a_subfolder"
MIN_MAX = "min_max_column"
REPEATED_COLUMN = "repeated_column"
UNNAMED_COLUMN = "unnamed_column"
NAME_REPAIRED = "name_repaired"

MAX_DAMAGED = 0.1
"""The largest share of a log, at (0, 1), that may be unreadable before the rest is not trusted."""


@dataclass
class Tally:
    """Counts of one reading; the readers add to it."""

    left_out: Counter[str] = field(default_factory=Counter)
    step_keys: Counter[str] = field(default_factory=Counter)


@dataclass
class Damage:
    """How much of one file was garbage."""

    path: Path
    unit: str
    rows: int = 0
    bad_rows: list[int] = field(default_factory=list)

    def met(self, row: int) -> None:
        """One unreadable row more, the `row`-th of the file (from 1)."""
        self.bad_rows.append(row)

    def settle(self, tally: Tally, *, torn: bool) -> None:
        """Count the garbage, once the file is read to its end.

        `torn` says that the last row of the file lacks its end: if that row is garbage, then
        because its writer was stopped, and it says nothing against the others.

        Raises:
            HistoryError: more than `MAX_DAMAGED` of the rows is garbage.
        """
        if torn:
            self.bad_rows.pop()
            self.rows -= 1
            tally.left_out[TORN] += 1
        if len(self.bad_rows) > MAX_DAMAGED * self.rows:
            raise HistoryError(
                f"{self.path}: {len(self.bad_rows)} of {self.rows} {self.unit}s cannot be read,"
                f" first {self.unit} {self.bad_rows[0]}; name a file that holds the logged numbers"
                " alone, or remove from it what is none of them"
            )
        if self.bad_rows:
            tally.left_out[UNREADABLE] += len(self.bad_rows)
