"""Ranks of values."""

import numpy as np

from ragen_diag.trends.series import FloatArray


def ranks(value_N: FloatArray) -> FloatArray:
    """Ranks from 0, equal values sharing their mean.

    >>> ranks(np.array([0.3, 0.1, 0.3])).tolist()
    [1.5, 0.0, 1.5]
    """
    below_N = (value_N[None] < value_N[:, None]).sum(axis=1)
    equal_N = (value_N[None] == value_N[:, None]).sum(axis=1)
    return np.asarray(below_N + (equal_N - 1) / 2, dtype=np.float64)
