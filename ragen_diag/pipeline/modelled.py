"""What the model side of an analysis produced, handed on as one value. Knows no verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragen_diag.groups import Groups
from ragen_diag.metrics.trials import FormatTrial, TemperatureTrial
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
    against_template: Mapping[str, int] = field(default_factory=dict)
    """Rows with both messages and a prompt, by how the two agree."""
    formats: FormatTrial | None = None
    """None where the format of the prompts is not in doubt."""
    temperatures: TemperatureTrial | None = None
    """None where the dump's log-probs are not, or there are none."""
