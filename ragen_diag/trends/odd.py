"""Single steps that stand out from their neighbours: one odd step is no movement."""

import numpy as np

from ragen_diag.trends.series import BoolArray, FloatArray, IntArray

FAR = 3.0
"""Noise scales away from the mean of both neighbours; the usual three."""
AGREE = 0.5
"""The neighbours differ by less than this part of the distance, or it is a movement, not one step;
a quarter at the ends, where both neighbours lie on one side."""
FEWEST = 6


def odd_steps(value_S: FloatArray, segment_S: IntArray) -> BoolArray:
    """True where one value of a series stands alone, shape (S,).

    The noise is the scaled median difference of neighbours within segments. Nothing is odd in fewer
    than six values; of neighbouring odd values only the farthest is. At the ends a value is held
    against the two next to it, so that a last step that falls alone is odd until another follows.
    """
    odd_S = np.zeros(len(value_S), dtype=np.bool_)
    if len(value_S) < FEWEST:
        return odd_S
    left_S = np.r_[1, np.arange(len(value_S) - 2), len(value_S) - 3]
    right_S = np.r_[2, np.arange(2, len(value_S)), len(value_S) - 2]
    distance_S = np.abs(value_S - (value_S[left_S] + value_S[right_S]) / 2)
    together_S = (segment_S[left_S] == segment_S) & (segment_S[right_S] == segment_S)
    apart = np.abs(np.diff(value_S))[np.diff(segment_S) == 0]
    # Differences, for one odd step or a movement spoils fewer of them than of the distances; their
    # median is 0.6745 sqrt(2) of the noise, if it is normal.
    noise = float(np.median(apart)) / (0.6745 * 2**0.5) if len(apart) else np.inf
    agree_S = np.full(len(value_S), AGREE)
    agree_S[[0, -1]] = AGREE / 2
    apart_S = np.abs(value_S[left_S] - value_S[right_S])
    odd_S = together_S & (distance_S > FAR * noise) & (apart_S < agree_S * distance_S)
    farther_S = np.r_[False, distance_S[1:] <= distance_S[:-1]] & np.r_[False, odd_S[:-1]]
    farther_S |= np.r_[distance_S[:-1] < distance_S[1:], False] & np.r_[odd_S[1:], False]
    return np.asarray(odd_S & ~farther_S, dtype=np.bool_)
