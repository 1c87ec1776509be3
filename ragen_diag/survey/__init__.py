"""A dump and its checkpoint looked over before anything is loaded: what is there, is it usable.

Comes in: the paths of a dump, and how it is to be read. Goes out: a `Survey` of facts and problems.
Knows no model and no torch.
"""

from ragen_diag.survey.facts import Problem, Survey
from ragen_diag.survey.flow import survey
from ragen_diag.survey.tally import Observer

__all__ = ["Observer", "Problem", "Survey", "survey"]
