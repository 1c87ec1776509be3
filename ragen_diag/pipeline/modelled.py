"""What the model side of an analysis produced, handed on as one value. Knows no verdicts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragen_diag.groups import Groups
from ragen_diag.pipeline.measurements import Scored
from ragen_diag.scoring.scores import Scores

if TYPE_CHECKING:
    from ragen_diag.checkpoints.load import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """A step under its checkpoint.

    `scores` and `measured` are None when no response has reasoning to score, which is a finding
    and no error: a policy that lost its format is what the tool is asked about.
    """

    checkpoint: "Checkpoint"
    groups: Groups
    scores: Scores | None
    measured: Scored | None
