"""The family of fits of an onset: a level up to one step, a way, another level from another on.

Least squares of the whitened series over all pairs of knots, and how large the best fit gets where
nothing happens. Knows no directions and no thresholds.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ragen_diag.trends.series import FloatArray, IntArray

DRAWS = 2000
_AT_ONCE = 500
PHIS = np.linspace(0.0, 0.9, 10)
"""Autocorrelations of neighbouring steps that are told apart."""


@dataclass(frozen=True)
class Family:
    """All F fits to S steps: `start_F` is the last step of the old level, `end_F` the first of the
    new one, both as places.

    `shape_FS` are the ramps from 0 to 1, `direction_FS` their whitened parts across the level, of
    length one; `whiten_SS` and `level_S` (whitened, of length one) make the same of a series.
    """

    start_F: IntArray
    end_F: IntArray
    shape_FS: FloatArray
    direction_FS: FloatArray
    whiten_SS: FloatArray
    level_S: FloatArray

    def across(self, value_S: FloatArray) -> FloatArray:
        """The whitened series without its level."""
        whitened: FloatArray = self.whiten_SS @ value_S
        return whitened - self.level_S * (self.level_S @ whitened)


@lru_cache(maxsize=16)
def family(step: tuple[int, ...], segment: tuple[int, ...], phi: float) -> Family:
    """The family over these steps for noise that is AR(1) within segments.

    Two steps at least are of each level, one for a way that takes three steps or more.
    """
    size = len(step)
    step_S, segment_S = np.array(step, dtype=np.float64), np.array(segment)
    start_F, end_F = np.triu_indices(size, k=1)
    way_F = end_F - start_F
    enough = (start_F >= 1) & (end_F <= size - 2) | (way_F >= 3)
    start_F, end_F = start_F[enough], end_F[enough]
    low_F1, high_F1 = step_S[start_F][:, None], step_S[end_F][:, None]
    shape_FS = np.clip((step_S[None] - low_F1) / (high_F1 - low_F1), 0.0, 1.0)
    whiten_SS = _whitening(segment_S, phi)
    level_S = whiten_SS @ np.ones(size)
    level_S /= np.linalg.norm(level_S)
    direction_FS = shape_FS @ whiten_SS.T
    direction_FS -= np.outer(direction_FS @ level_S, level_S)
    direction_FS /= np.linalg.norm(direction_FS, axis=1, keepdims=True)
    return Family(start_F, end_F, shape_FS, direction_FS, whiten_SS, level_S)


def _whitening(segment_S: IntArray, phi: float) -> FloatArray:
    """Turns AR(1) noise into white noise of the same innovations; every segment begins anew."""
    size = len(segment_S)
    whiten_SS = np.eye(size)
    for place in range(size):
        if place and segment_S[place] == segment_S[place - 1]:
            whiten_SS[place, place - 1] = -phi
        else:
            whiten_SS[place, place] = (1 - phi**2) ** 0.5
    return whiten_SS


@lru_cache(maxsize=64)
def null_shares(
    step: tuple[int, ...], segment: tuple[int, ...], phi: float, seed: int
) -> FloatArray:
    """Ascending: the share of the sum of squares that the best rising fit takes of noise alone."""
    fits = family(step, segment, phi)
    generator = np.random.default_rng([seed, len(step)])
    shares = []
    for _ in range(DRAWS // _AT_ONCE):
        noise_SD = generator.standard_normal((len(step), _AT_ONCE))
        noise_SD -= np.outer(fits.level_S, fits.level_S @ noise_SD)
        best_D = (fits.direction_FS @ noise_SD).max(axis=0)
        shares.append(np.clip(best_D, 0.0, None) ** 2 / (noise_SD**2).sum(axis=0))
    return np.sort(np.concatenate(shares))


def left_over(value_SD: FloatArray, step: tuple[int, ...], segment: tuple[int, ...]) -> FloatArray:
    """Autocorrelation of neighbours in what the best fit for white noise leaves, shape (D,).

    NaN where nothing is left, or no two steps are of one segment.
    """
    fits = family(step, segment, 0.0)
    across_SD = value_SD - fits.level_S[:, None] * (fits.level_S @ value_SD)
    part_FD = fits.direction_FS @ across_SD
    best_D = np.abs(part_FD).argmax(axis=0)
    taken_D = np.take_along_axis(part_FD, best_D[None], axis=0)[0]
    left_SD = across_SD - fits.direction_FS[best_D].T * taken_D
    near = np.diff(np.array(segment)) == 0
    squares_D = (left_SD**2).sum(axis=0)
    nothing_D = squares_D <= 1e-20 * np.maximum((value_SD**2).sum(axis=0), 1e-300)
    products_D = (left_SD[1:] * left_SD[:-1])[near].sum(axis=0)
    if not near.any():
        return np.full(len(squares_D), np.nan)
    return np.where(nothing_D, np.nan, products_D / np.where(nothing_D, 1.0, squares_D))


@lru_cache(maxsize=64)
def expected_left_over(step: tuple[int, ...], segment: tuple[int, ...]) -> FloatArray:
    """The mean of `left_over` for noise of each of `PHIS`, which is far below what went in: the
    fit takes the slow part of the noise for a movement. Ascending."""
    generator = np.random.default_rng(len(step))
    noise_SD = generator.standard_normal((len(step), _AT_ONCE))
    means = []
    for phi in PHIS:
        whiten_SS = _whitening(np.array(segment), float(phi))
        coloured_SD = np.asarray(np.linalg.solve(whiten_SS, noise_SD), dtype=np.float64)
        means.append(float(np.nanmean(left_over(coloured_SD, step, segment))))
    return np.maximum.accumulate(np.array(means))
