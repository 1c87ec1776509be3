"""A series -> when it left the level that it had, as an interval of steps, or that it did not.

The fit is a level, a way and another level (`ramp`), by least squares with AR(1) noise. An onset is
a movement that noise alone makes in less than one of 200 series, and that is large enough to matter
(`Material`). Its interval is all steps whose fit is not significantly worse than the best.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ragen_diag.trends.blocks import Blocks, blocks_of
from ragen_diag.trends.odd import odd_steps
from ragen_diag.trends.ramp import PHIS, Family, expected_left_over, family, left_over, null_shares
from ragen_diag.trends.series import BoolArray, FloatArray, Series

FEWEST = 6
"""Steps that it takes to speak of a level before and after."""
LARGEST = 1e100
"""A value beyond is none: it only shows that something overflowed, and its square would."""
ALPHA = 0.005
"""Per movement, as a run is watched for ten or more that would be bad news."""
_MAY_LOSE = 11.0
"""Twice the log likelihood that a start may lose against the best. Where a slope begins the
likelihood is not quadratic and the autocorrelation is a guess, so the 3.84 of one degree of freedom
covers too seldom; this was found on planted onsets, whose intervals then hold in 95 %."""
_MAY_LOSE_SUDDEN = 6.63
"""The same where a step fits and a slope does not: the 99 % of one degree of freedom."""
_CHI2_95 = 3.84
_PRIOR_PHI, _PRIOR_WEIGHT = 0.3, 10
"""Autocorrelation of neighbouring steps that short series are shrunk to, worth so many steps."""
_DRAWS = 2000

_GROWTH = 10.0
"""Largest over smallest value from which growth may be by factors; ours."""

Kind = Literal["none", "sudden", "gradual", "unclear", "lost", "too_few"]
"""An onset is "unclear" where a step and a slope fit alike."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """The least change that counts: both a part of the level before, and an absolute one."""

    relative: float
    absolute: float

    def of(self, before: float) -> float:
        """In the unit of the series."""
        return max(self.relative * abs(before), self.absolute)


_ANY = Material(relative=0.0, absolute=0.0)


@dataclass(frozen=True, kw_only=True)
class Onset:
    """After `last_good`, and at or before `first_bad`, with 95 % confidence.

    `ends` is the step at which the new level is reached in the best fit. `draws` are steps at which
    it may have begun, by their likelihood; empty without an onset. Without one, `before` and
    `after` are the levels of the best fit, as far as there is one, and `reason` says why it is
    none.
    """

    kind: Kind
    last_good: int | None = None
    first_bad: int | None = None
    ends: int | None = None
    before: float | None = None
    after: float | None = None
    p_value: float | None = None
    odd_steps: tuple[int, ...] = ()
    reason: str | None = None
    draws: FloatArray = field(default_factory=lambda: np.empty(0))


def find_onset(
    series: Series,
    *,
    direction: Literal[-1, 0, 1],
    material: Material,
    seed: int,
    alpha: float = ALPHA,
) -> Onset:
    """Look for the movement of a series in one direction, or in either (0).

    A series that is undefined (or beyond `LARGEST`) from some step to its end, two steps at least,
    is "lost" there, unless it moved before. A single odd step is left aside and named. Where the
    series first moves materially the other way, its level is what it reaches then: a reward that
    rises and then falls falls from its height. Fewer than six defined steps are "too_few". `alpha`
    is the share of series of noise alone that are called a movement, before `material` is asked
    for.
    """
    if direction == 0:
        either = [
            find_onset(series, direction=one, material=material, seed=seed, alpha=alpha / 2)
            for one in (-1, 1)
        ]
        rank = {"sudden": 0, "gradual": 0, "unclear": 0, "lost": 1, "none": 2, "too_few": 3}
        found = min(either, key=lambda one: (rank[one.kind], _p(one)))
        return replace(found, p_value=None if found.p_value is None else min(1.0, 2 * _p(found)))
    defined_S = np.abs(series.value_S) < LARGEST
    lost = _lost(series, defined_S)
    blocks = blocks_of(series, defined_S)
    if len(blocks.value_B) < FEWEST:
        n = int(defined_S.sum())
        few = Onset(kind="too_few", reason=f"defined at {n} steps; {FEWEST} are needed")
        return few if lost is None or n == 0 else lost
    odd_B = odd_steps(blocks.value_B, blocks.segment_B)
    odd = tuple(int(step) for step in blocks.first_B[odd_B])
    search = _Search(blocks.take(~odd_B), direction, material, seed, alpha)
    onset = replace(search.onset(), odd_steps=odd)
    return lost if lost is not None and onset.kind in ("none", "too_few") else onset


def _exp(value: float | None) -> float | None:
    return None if value is None else float(np.exp(value))


def _p(onset: Onset) -> float:
    return 1.0 if onset.p_value is None else onset.p_value


def _lost(series: Series, defined_S: BoolArray) -> Onset | None:
    last = int(np.flatnonzero(defined_S)[-1]) if defined_S.any() else -1
    if last < 0 or len(defined_S) - 1 - last < 2:
        return None
    good, bad = int(series.step_S[last]), int(series.step_S[last + 1])
    draws = np.linspace(good, bad, _DRAWS + 1)[1:]
    before = float(series.value_S[last])
    return Onset(kind="lost", last_good=good, first_bad=bad, ends=bad, before=before, draws=draws)


@dataclass(frozen=True)
class _Fit:
    """The best fit in one direction; `change` is in that direction, positive."""

    fits: Family
    share: float
    squares_F: FloatArray
    """Sums of squares that the fits leave; infinite for fits of the wrong direction."""
    best: int
    before: float
    change: float
    p_value: float


@dataclass(frozen=True)
class _Search:
    """The search for one movement in one series."""

    blocks: Blocks
    direction: int
    material: Material
    seed: int
    alpha: float

    def onset(self) -> Onset:
        begin = self._level_reached()
        blocks = self.blocks.take(slice(begin, None))
        where = (
            f" after step {blocks.first_B[0]}, where it had moved the other way" if begin else ""
        )
        if len(blocks.value_B) < FEWEST:
            return Onset(kind="none", reason=f"only {len(blocks.value_B)} steps{where}")
        fit = self._fit(blocks, self.direction)
        if fit is None:
            return Onset(kind="none", reason=f"no movement this way{where}")
        growth = self._growth(blocks, fit)
        if growth is not None:
            found = replace(self, material=_ANY)._told(blocks.logs(), growth, where)
            found = replace(found, before=_exp(found.before), after=_exp(found.after))
            if found.kind == "none" or self._matters(found):
                return found
        return self._told(blocks, fit, where)

    def _told(self, blocks: Blocks, fit: "_Fit", where: str) -> Onset:
        levels = Onset(
            kind="none",
            before=fit.before,
            after=fit.before + self.direction * fit.change,
            p_value=fit.p_value,
        )
        if fit.change < self.material.of(fit.before):
            return replace(levels, reason=f"too small a movement{where}")
        if fit.p_value >= self.alpha:
            return replace(levels, reason=f"noise alone moves as far{where}")
        return self._dated(blocks, fit, levels)

    def _growth(self, blocks: Blocks, fit: "_Fit") -> "_Fit | None":
        """The fit of the logarithms where it is the better one: of what doubles and doubles, a
        straight way would be dated to its end."""
        low, high = float(blocks.value_B.min()), float(blocks.value_B.max())
        if self.direction != 1 or low <= 0 or high < _GROWTH * low:
            return None
        logs = self._fit(blocks.logs(), self.direction)
        if logs is None or logs.share <= fit.share:
            return None
        # The better of two scales: twice the chance.
        return replace(logs, p_value=min(1.0, 2 * logs.p_value))

    def _matters(self, found: Onset) -> bool:
        before, after = found.before or 0.0, found.after or 0.0
        return after - before >= self.material.of(before)

    def _level_reached(self) -> int:
        """Where the level begins that a movement is measured from: 0, or the end of a movement the
        other way before the series turns."""
        value_B = self.blocks.value_B * self.direction
        smooth_B = np.array(
            [np.median(value_B[max(0, at - 1) : at + 2]) for at in range(len(value_B))]
        )
        turn = int(np.argmin(smooth_B)) + 1
        if turn < FEWEST:
            # Too few to fit: the level reached is judged only if it is far from the first.
            return 0
        opposite = self._fit(self.blocks.take(slice(None, turn)), -self.direction)
        if (
            opposite is None
            or opposite.p_value >= 0.05
            or opposite.change < self.material.of(opposite.before)
        ):
            return 0
        return int(opposite.fits.end_F[opposite.best])

    def _fit(self, blocks: Blocks, direction: int) -> _Fit | None:
        value_B = blocks.value_B * direction
        step = tuple(int(one) for one in blocks.first_B)
        segment = tuple(int(one) for one in blocks.segment_B)
        phi = _autocorrelation(value_B, step, segment)
        fits = family(step, segment, phi)
        across_B = fits.across(value_B)
        total = float(across_B @ across_B)
        if total <= 0:
            return None
        part_F = fits.direction_FS @ across_B
        best = int(np.argmax(part_F))
        if part_F[best] <= 0:
            return None
        squares_F = np.where(part_F > 0, np.maximum(total - part_F**2, 0.0), np.inf)
        share = min(1.0, float(part_F[best] ** 2 / total))
        before, change = _levels(fits, best, value_B)
        nulls = null_shares(step, segment, phi, self.seed)
        # The smallest part of a share that rounding leaves is no difference.
        as_large = len(nulls) - int(np.searchsorted(nulls, share - 1e-12))
        p_value = (1 + as_large) / (1 + len(nulls))
        return _Fit(fits, share, squares_F, best, before * direction, change, p_value)

    def _dated(self, blocks: Blocks, fit: _Fit, levels: Onset) -> Onset:
        fits, size = fit.fits, len(blocks.value_B)
        freedom = max(1, size - 4)
        floor = self._floor(blocks, fit)
        squares_F = fit.squares_F + floor
        kind, chosen = self._kind(fits, squares_F, freedom)
        may_lose = _MAY_LOSE_SUDDEN if kind == "sudden" else _MAY_LOSE
        # Wider in short series, as F is wider than chi-square.
        allowed = squares_F[fit.best] * (1 + may_lose * (1 + 3.0 / freedom) / freedom)
        starts = fits.start_F[squares_F <= allowed]
        first, last = int(starts.min()), int(starts.max())
        before, change = _levels(fits, chosen, blocks.value_B * self.direction)
        return replace(
            levels,
            kind=kind,
            last_good=int(blocks.first_B[first]),
            first_bad=int(blocks.last_B[last + 1]),
            ends=int(blocks.first_B[fits.end_F[chosen]]),
            before=before * self.direction,
            after=(before + change) * self.direction,
            draws=self._draws(blocks, fits, squares_F, freedom),
        )

    def _kind(self, fits: Family, squares_F: FloatArray, freedom: int) -> tuple[Kind, int]:
        """Sudden or gradual, if the data tell them apart, and the best fit of that kind.

        A way over three steps or more is gradual; one over two may be a step that fell between.
        """
        way_F = fits.end_F - fits.start_F
        allowed = squares_F.min() * (1 + _CHI2_95 / freedom)
        best = {
            kind: int(np.flatnonzero(of_F)[np.argmin(squares_F[of_F])])
            for kind, of_F in (("sudden", way_F == 1), ("gradual", way_F >= 3))
            if of_F.any()
        }
        fitting = [kind for kind, one in best.items() if squares_F[one] <= allowed]
        if fitting == ["sudden"]:
            return "sudden", best["sudden"]
        if fitting == ["gradual"]:
            return "gradual", best["gradual"]
        return "unclear", int(np.argmin(squares_F))

    def _floor(self, blocks: Blocks, fit: _Fit) -> float:
        """Squares that the intervals of the values promise but so few residuals may not show."""
        size = len(blocks.value_B)
        known = blocks.error_B[np.isfinite(blocks.error_B)]
        tiny = 1e-18 * float(np.abs(blocks.value_B).max()) ** 2 + 1e-300
        if size >= 2 * FEWEST or not len(known):
            return tiny
        left = float(fit.squares_F[fit.best])
        return max(tiny, float(np.mean(known**2)) * (size - 2) - left)

    def _draws(
        self, blocks: Blocks, fits: Family, squares_F: FloatArray, freedom: int
    ) -> FloatArray:
        """Steps at which it may have begun, each start by the likelihood of its best fit."""
        size = len(blocks.value_B)
        squares_B = np.full(size, np.inf)
        np.minimum.at(squares_B, fits.start_F, squares_F)
        weight_B = (squares_B / squares_B.min()) ** (-freedom / 2)
        generator = np.random.default_rng([self.seed, size])
        start_D = generator.choice(size, size=_DRAWS, p=weight_B / weight_B.sum())
        low_D, high_D = blocks.first_B[start_D], blocks.last_B[start_D + 1]
        return np.sort(low_D + (high_D - low_D) * generator.random(_DRAWS))


def _levels(fits: Family, one: int, value_B: FloatArray) -> tuple[float, float]:
    """The level before and the change of one fit."""
    shape_B = fits.whiten_SS @ fits.shape_FS[one]
    ones_B = fits.whiten_SS @ np.ones(len(value_B))
    found, *_ = np.linalg.lstsq(
        np.column_stack([ones_B, shape_B]), fits.whiten_SS @ value_B, rcond=None
    )
    # A slope at the edge of the series may be drawn out beyond anything that was measured.
    before, after = np.clip([found[0], found[0] + found[1]], value_B.min(), value_B.max())
    return float(before), float(after - before)


def _autocorrelation(value_B: FloatArray, step: tuple[int, ...], segment: tuple[int, ...]) -> float:
    """Of the noise, from what the best fit for white noise leaves, as noise of which
    autocorrelation leaves as much on average; shrunk for short series, and in steps of 0.05 so
    that the series of a run share their nulls."""
    raw = float(left_over(value_B[:, None], step, segment)[0])
    if not np.isfinite(raw):
        return _PRIOR_PHI
    found = float(np.interp(raw, expected_left_over(step, segment), PHIS))
    n = len(value_B)
    shrunk = (n * found + _PRIOR_WEIGHT * _PRIOR_PHI) / (n + _PRIOR_WEIGHT)
    return float(np.clip(round(shrunk * 20) / 20, 0.0, PHIS[-1]))
