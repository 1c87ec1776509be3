"""Results of the steps of one run -> every quantity as a series over steps, with its marks.

points     one step: its result, and what scored it
extract    the numbers of a point, by name
timeline   all points: series, marks, and the table of `timeline.parquet`
"""

from ragen_diag.timeline.points import Point, Scorer
from ragen_diag.timeline.timeline import Marks, Timeline

__all__ = ["Marks", "Point", "Scorer", "Timeline"]
