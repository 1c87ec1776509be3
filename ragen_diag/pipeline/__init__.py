"""One analysis from dump to report: the stages in order, and what is handed between them.

flow            analyze(): the one place that knows every stage
step            the rows of one training step, with their reasoning spans
measurements    a step and its scores -> metrics
modelled        what the model side produced
gathering       all of it -> the evidence that findings rest on
baseline        an earlier result as the yardstick
account         what the result tells of its inputs
tables          the tables of the out folder
examples        the texts that the report shows
"""

from ragen_diag.pipeline.flow import analyze
from ragen_diag.pipeline.observer import Observer

__all__ = ["Observer", "analyze"]
