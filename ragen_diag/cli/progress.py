"""Progress on standard error: a bar with ETA on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from ragen_diag.report.safetext import inert, one_line
from ragen_diag.scoring import Progress

_SECONDS_BETWEEN_LINES = 30.0
_SHARE_BETWEEN_LINES = 0.1


class ProgressBar:
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
        self._before = Progress(0, 0, 0, 0)

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

    def scored(self, progress: Progress) -> None:
        """How many (response, prompt) pairs are scored, how fast, and how long the rest takes."""
        if self._quiet or progress.pairs_in_all == 0:
            return
        if progress.resumed_pairs > self._before.resumed_pairs:
            # The clock of a run that goes on starts with the first pair that is its own.
            self._before, self._started = progress, time.monotonic()
        if self._console.is_terminal:
            self._advance_bar(progress)
        else:
            self._maybe_line(progress)

    def _advance_bar(self, progress: Progress) -> None:
        if self._bar is None:
            self._bar = RichProgress(
                TextColumn("scoring"),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[told]}"),
                console=self._console,
                transient=True,
            )
            self._bar.add_task("scoring", total=progress.pairs_in_all, told="")
            self._bar.start()
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=progress.pairs, told=self._told(progress))
        if progress.pairs >= progress.pairs_in_all:
            self._stop()

    def _maybe_line(self, progress: Progress) -> None:
        now, share = time.monotonic(), progress.pairs / progress.pairs_in_all
        due = share - self._last_share >= _SHARE_BETWEEN_LINES
        if due and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            sys.stderr.write(f"scoring: {self._told(progress)}\n")
            self._last_line, self._last_share = now, share

    def _told(self, progress: Progress) -> str:
        told = f"{progress.pairs:,} of {progress.pairs_in_all:,} pairs"
        seconds = time.monotonic() - self._started
        pairs = progress.pairs - self._before.pairs
        if not pairs or seconds <= 0:
            return told
        left = seconds * (progress.pairs_in_all - progress.pairs) / pairs
        tokens = (progress.tokens - self._before.tokens) / seconds
        return f"{told}, {tokens:,.0f} tokens/s, about {_duration(left)} left"

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _duration(seconds: float) -> str:
    """
    >>> _duration(42.0), _duration(600.0), _duration(9000.0)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
