"""Progress on standard error: a bar with ETA on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from ragen_diag.report.safetext import inert, one_line

_SECONDS_BETWEEN_LINES = 30.0
_SHARE_BETWEEN_LINES = 0.1


class Progress:
    """Reports notes and scored pairs; silent when `quiet`.

    A scheduler's log file is no terminal: there a plain line appears every tenth of the work or
    every 30 seconds, whichever comes later, so that logs stay short.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False)
        self._bar: RichProgress | None = None
        self._started = time.monotonic()
        self._last_line = self._started
        self._last_share = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def note(self, text: str) -> None:
        """One line about a choice that was made."""
        if not self._quiet:
            self._console.print(inert(one_line(text)), markup=False, soft_wrap=True)

    def pairs(self, done: int, total: int) -> None:
        """`done` of `total` (response, prompt) pairs are scored."""
        if self._quiet or total == 0:
            return
        if self._console.is_terminal:
            self._advance_bar(done, total)
        else:
            self._maybe_line(done, total)

    def _advance_bar(self, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = RichProgress(
                TextColumn("scoring"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("pairs, left"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.add_task("scoring", total=total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        if done >= total:
            self._stop()

    def _maybe_line(self, done: int, total: int) -> None:
        now, share = time.monotonic(), done / total
        due = share - self._last_share >= _SHARE_BETWEEN_LINES
        if due and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            left = (now - self._started) * (total - done) / max(done, 1)
            sys.stderr.write(f"scoring: {done} of {total} pairs, about {left:.0f} s left\n")
            self._last_line, self._last_share = now, share

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
