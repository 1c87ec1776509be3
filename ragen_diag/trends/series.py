"""One quantity over the steps of one run. Knows no names, no files and no verdicts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Series:
    """Values at S strictly increasing steps; NaN where undefined.

    `low_S` and `high_S` are 95 % intervals, NaN where none is known. `segment_S` is one more after
    every resume of the run: nothing is averaged or differenced across.
    """

    step_S: IntArray
    value_S: FloatArray
    low_S: FloatArray
    high_S: FloatArray
    segment_S: IntArray

    def take(self, which_S: BoolArray) -> "Series":
        """Only these steps."""
        return Series(**{name: getattr(self, name)[which_S] for name in self.__dataclass_fields__})
