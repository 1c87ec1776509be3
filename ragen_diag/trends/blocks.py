"""A series as few enough blocks of neighbouring steps to fit; one step each, if there are few.

Comes in: a series. Goes out: its defined values, averaged within segments where there are many.
"""

from dataclasses import dataclass, replace

import numpy as np

from ragen_diag.trends.series import BoolArray, FloatArray, IntArray, Series

MOST = 80
"""Steps that are fitted; longer series are averaged in blocks, and intervals are of blocks."""


@dataclass(frozen=True)
class Blocks:
    """B blocks of neighbouring steps of one segment; of one step each, if there are few."""

    first_B: IntArray
    last_B: IntArray
    value_B: FloatArray
    error_B: FloatArray
    segment_B: IntArray

    def logs(self) -> "Blocks":
        return replace(self, value_B=np.log(self.value_B), error_B=self.error_B / self.value_B)

    def take(self, which: BoolArray | slice) -> "Blocks":
        return Blocks(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


def blocks_of(series: Series, defined_S: BoolArray) -> Blocks:
    step_S, value_S = series.step_S[defined_S], series.value_S[defined_S]
    segment_S = series.segment_S[defined_S]
    error_S = ((series.high_S - series.low_S) / 2 / 1.96)[defined_S]
    size = -(-len(step_S) // MOST)
    starts = [
        first
        for segment in np.unique(segment_S)
        for first in np.flatnonzero(segment_S == segment)[::size]
    ]
    if not starts:
        none = np.empty(0)
        return Blocks(none.astype(int), none.astype(int), none, none, none.astype(int))
    first_B = np.array(starts)
    last_B = np.r_[first_B[1:], len(step_S)] - 1
    counts_B = last_B - first_B + 1
    return Blocks(
        step_S[first_B],
        step_S[last_B],
        np.add.reduceat(value_S, first_B) / counts_B,
        error_S[first_B] / counts_B**0.5,
        segment_S[first_B],
    )
