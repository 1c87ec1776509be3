"""All steps of one run: series with their segments, marks, and the long table.

Comes in: points in order of steps, restarts of the run, scalar logs. Goes out: `Series`. The one
quantity that is defined over steps and not at one, the smoothed z-score, is made here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ragen_diag.metrics.information import STD_EPSILON, UNITS
from ragen_diag.metrics.metric import Metric
from ragen_diag.timeline.extract import numbers
from ragen_diag.timeline.points import Point, Scorer
from ragen_diag.trends.series import Series

EMA = 0.9
"""Weight of the past in the smoothed marginal std of the public implementation."""
HISTORY = "history/"
"""What the names of scalars from a log begin with."""

SCHEMA = {
    "step": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What must be drawn beside the curves: steps at which something other than learning happened.

    `resumes` are the first steps that a resumed run wrote again; `scorer_changes` the first steps
    under another checkpoint than the step before, unless each lies as far back; `gaps` pairs of
    neighbouring steps further apart than usual.
    """

    resumes: tuple[int, ...] = ()
    scorer_changes: tuple[int, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The steps of one run in ascending order.

    `resumes` are steps; `history` has the columns step, name, value (scalar logs of the trainer).
    """

    points: Sequence[Point]
    resumes: tuple[int, ...] = ()
    history: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(
            schema={"step": pl.Int64, "name": pl.String, "value": pl.Float64}
        )
    )

    @property
    def steps(self) -> list[int]:
        """The steps that were analysed."""
        return [point.step for point in self.points]

    @cached_property
    def marks(self) -> Marks:
        """Resumes, changes of the scorer and gaps."""
        scored = [point for point in self.points if point.scorer is not None]
        changes = [
            later.step
            for earlier, later in pairwise(scored)
            if _another(earlier.scorer, later.scorer)
        ]
        steps = np.array(self.steps, dtype=np.int64)
        apart = np.diff(steps)
        usual = float(np.median(apart)) if apart.size else 0.0
        wide = np.flatnonzero(apart > 1.5 * usual)
        return Marks(
            resumes=self.resumes,
            scorer_changes=tuple(changes),
            gaps=tuple((int(steps[at]), int(steps[at + 1])) for at in wide),
        )

    @cached_property
    def metrics(self) -> Mapping[str, Sequence[Metric]]:
        """Name -> its value at every step; undefined where a step lacks it."""
        per_step = [numbers(point) for point in self.points]
        names = sorted({name for found in per_step for name in found})
        table = {
            name: [
                found.get(name) or Metric.undefined(point.unscored or "not measured at this step")
                for point, found in zip(self.points, per_step, strict=True)
            ]
            for name in names
        }
        for seq in ("", "_seq"):
            if f"marginal_std{seq}" in table:
                table |= self._smoothed(table, seq)
        return table

    @property
    def logged(self) -> list[str]:
        """Names of the scalars from logs."""
        return [f"{HISTORY}{name}" for name in self.history["name"].unique().sort()]

    def series(self, name: str) -> Series:
        """One quantity over the steps; NaN where it is undefined.

        Raises:
            KeyError: no step measures it.
        """
        if name.startswith(HISTORY):
            rows = self.history.filter(pl.col("name") == name.removeprefix(HISTORY)).sort("step")
            steps, values = rows["step"].to_numpy(), rows["value"].to_numpy()
            none = np.full(len(steps), np.nan)
            return Series(
                step_S=steps.astype(np.int64),
                value_S=values.astype(np.float64),
                low_S=none,
                high_S=none,
                segment_S=self._segments(steps),
            )
        found = self.metrics[name]
        return Series(
            step_S=np.array(self.steps, dtype=np.int64),
            value_S=_floats([metric.value for metric in found]),
            low_S=_floats([metric.low for metric in found]),
            high_S=_floats([metric.high for metric in found]),
            segment_S=self._segments(np.array(self.steps), scored=name in UNITS),
        )

    def frame(self) -> pl.DataFrame:
        """A row per step and metric: `timeline.parquet`. Undefined values are null."""
        rows = [
            (step, name, metric.value, metric.low, metric.high)
            for name, found in self.metrics.items()
            for step, metric in zip(self.steps, found, strict=True)
        ]
        rows += [
            (step, f"{HISTORY}{name}", value, None, None)
            for step, name, value in self.history.select("step", "name", "value").iter_rows()
        ]
        return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("step", "metric")

    def _segments(self, steps: NDArray[np.int64], *, scored: bool = False) -> NDArray[np.int64]:
        """Another scorer is as much of a break as a resume for what it measures."""
        breaks = sorted({*self.resumes, *(self.marks.scorer_changes if scored else ())})
        return np.searchsorted(np.array(breaks, dtype=np.int64), steps, side="right").astype(
            np.int64
        )

    def _smoothed(self, table: Mapping[str, Sequence[Metric]], seq: str) -> dict[str, list[Metric]]:
        """`mi_zscore_ema` and its denominator as functions over steps (method of RAGEN-2's code):
        only the std is smoothed, s_ema(t) = 0.9 s_ema(t-1) + 0.1 s(t), starting anew after a resume
        or under another scorer, whose marginals are not those of the one before."""
        stds, gaps = table[f"marginal_std{seq}"], table[f"mi{seq}_estimate"]
        anew = {*self.resumes, *self.marks.scorer_changes}
        smooth: float | None = None
        zscores, smoothed = [], []
        for step, std, gap in zip(self.steps, stds, gaps, strict=True):
            if any(at <= step for at in anew):
                anew = {at for at in anew if at > step}
                smooth = None
            if std.value is None or gap.value is None:
                zscores.append(Metric.undefined(gap.reason or std.reason or "not measured"))
                smoothed.append(Metric.undefined(std.reason or "not measured", unit=std.unit))
                continue
            smooth = std.value if smooth is None else EMA * smooth + (1 - EMA) * std.value
            zscores.append(_scaled(gap, 1 / (smooth + STD_EPSILON)))
            smoothed.append(replace(std, value=smooth, low=None, high=None))
        return {f"mi_zscore_ema{seq}": zscores, f"marginal_std_ema{seq}": smoothed}


def _another(earlier: Scorer | None, later: Scorer | None) -> bool:
    """Whether a step is scored by another checkpoint that lies otherwise far back than that of the
    step before: as many steps back each, own ones among them, is one way of looking."""
    if earlier is None or later is None:
        return False
    same_lag = earlier.lag is not None and earlier.lag == later.lag
    return earlier.path != later.path and not same_lag


def _scaled(metric: Metric, factor: float) -> Metric:
    low, high = (None if end is None else end * factor for end in (metric.low, metric.high))
    value = None if metric.value is None else metric.value * factor
    return Metric(value=value, low=low, high=high, n=metric.n)


def _floats(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
