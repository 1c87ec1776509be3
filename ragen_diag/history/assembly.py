"""Entries in the order they were logged -> `History`: one value for each step and name.

Two things make a log say a step twice. The same step logged again: the later value holds. And a run
that was resumed from an earlier step: what the abandoned run had logged from that step on is left
out. Knows no files.
"""

from array import array
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from ragen_diag.errors import HistoryError
from ragen_diag.history.history import History
from ragen_diag.history.rows import Entry, as_number
from ragen_diag.history.source import Source
from ragen_diag.history.tally import BEFORE_A_RESUME, LOGGED_AGAIN, NAME_REPAIRED, Tally

IntArray = npt.NDArray[np.integer]

_FEW_RESUMES = 10
_RESUMES_PER_ROW = 0.1
_NEVER = np.iinfo(np.int64).max


class Assembly:
    """Takes entries, keeps numbers: 24 bytes a value, whatever the rows looked like."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._names: dict[str, int] = {}
        self._last_step: dict[str, int] = {}
        self._resumed_at: list[int] = []
        self._rows = 0
        self._step_N = array("q")
        self._name_N = array("i")
        self._value_N = array("d")
        self._stretch_N = array("i")

    def extend(self, entries: Iterable[Entry]) -> None:
        """More of the log, in the order it was written."""
        for step, values in entries:
            self._rows += 1
            numbers = self._numbers(values)
            if self._goes_back(step, numbers):
                self._resumed_at.append(step)
                self._last_step.clear()
            for name, number in numbers.items():
                self._last_step[name] = step
                self._step_N.append(step)
                self._name_N.append(self._names.setdefault(name, len(self._names)))
                self._value_N.append(number)
                self._stretch_N.append(len(self._resumed_at))

    def history(self, path: Path, source: Source) -> History:
        """What is left when every step stands once.

        Raises:
            HistoryError: no number was logged, or the steps go back so often that this is no log of
                one run.
        """
        if not self._step_N:
            raise HistoryError(
                f"{path}: no number at any step in {self._rows} rows; name the log of the training"
                " run's metrics"
            )
        resumes = len(self._resumed_at)
        if resumes > max(_FEW_RESUMES, _RESUMES_PER_ROW * self._rows):
            raise HistoryError(
                f"{path}: the steps go back at {resumes} of {self._rows} rows, so this is no log of"
                " one run in its order; sort it by step, or take one run out of it"
            )
        frame = self._frame()
        return History(
            paths=source.paths,
            kind=source.kind,
            frame=frame,
            restarts=_surviving(self._resumed_at),
            step_keys=dict(sorted(self._tally.step_keys.items())),
            left_out=dict(sorted((+self._tally.left_out).items())),
        )

    def _numbers(self, values: dict[str, object]) -> dict[str, float]:
        numbers: dict[str, float] = {}
        for name, value in values.items():
            number = as_number(value)
            if isinstance(number, str):
                self._tally.left_out[number] += 1
            else:
                numbers[name] = number
        return numbers

    def _goes_back(self, step: int, names: Collection[str]) -> bool:
        """Whether most of a row's names were logged at a later step already since the last resume.

        Rows of other names may come late: those of evaluations that run beside the training do.
        """
        return 2 * sum(self._last_step.get(name, step) > step for name in names) > len(names)

    def _frame(self) -> pl.DataFrame:
        texts = [name.encode("utf-8", "backslashreplace").decode("utf-8") for name in self._names]
        self._tally.left_out[NAME_REPAIRED] += sum(
            text != name for text, name in zip(texts, self._names, strict=True)
        )
        rank_of = {text: rank for rank, text in enumerate(sorted(set(texts)))}
        rank_of_name = np.array([rank_of[text] for text in texts], dtype=np.int32)
        step_N = np.frombuffer(self._step_N, dtype=np.int64)
        rank_N = rank_of_name[np.frombuffer(self._name_N, dtype=np.int32)]
        kept = self._kept(step_N, rank_N)
        names = pl.Series("name", list(rank_of), dtype=pl.String)
        return pl.DataFrame(
            {
                "step": step_N[kept],
                "name": names.gather(rank_N[kept]),
                "value": np.frombuffer(self._value_N, dtype=np.float64)[kept],
            }
        )

    def _kept(self, step_N: IntArray, rank_N: IntArray) -> IntArray:
        """Where the values that hold are, by step and name."""
        end_N = self._abandoned_from()[np.frombuffer(self._stretch_N, dtype=np.int32)]
        lasting = np.flatnonzero((step_N < end_N) | (end_N == _NEVER))
        # Stable, so of several values at one step the last logged comes last.
        order = lasting[np.lexsort((rank_N[lasting], step_N[lasting]))]
        differs = (np.diff(step_N[order]) != 0) | (np.diff(rank_N[order]) != 0)
        once: IntArray = order[np.append(differs, True)]
        self._tally.left_out[BEFORE_A_RESUME] += len(step_N) - len(lasting)
        self._tally.left_out[LOGGED_AGAIN] += len(lasting) - len(once)
        return once

    def _abandoned_from(self) -> IntArray:
        """The step from which on each stretch was abandoned: the earliest of the later resumes."""
        ends = np.array([*self._resumed_at, _NEVER], dtype=np.int64)
        earliest: IntArray = np.minimum.accumulate(ends[::-1])[::-1]
        return earliest


def _surviving(resumed_at: list[int]) -> tuple[int, ...]:
    """The resumes whose own stretch was not abandoned later, increasing."""
    surviving: list[int] = []
    for step in resumed_at:
        while surviving and surviving[-1] >= step:
            surviving.pop()
        surviving.append(step)
    return tuple(surviving)
