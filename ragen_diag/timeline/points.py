"""One step of a run as the timeline sees it: what was measured, and by which checkpoint."""

from dataclasses import dataclass

from ragen_diag.result import Result


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """The checkpoint that scored a step.

    `lag` is the step minus the checkpoint's own, 0 where it is the policy that sampled; None where
    the checkpoint is one yardstick for all steps.
    """

    path: str
    step: int | None
    lag: int | None

    @property
    def is_policy(self) -> bool:
        """Whether it is the policy that sampled, so that entropies are the policy's own."""
        return self.lag == 0


@dataclass(frozen=True, kw_only=True)
class Point:
    """One step: its result, its scorer (None without one) and why nothing was scored.

    `kept_share` is the share of its groups that the filter of RAGEN-2 would keep at rho 0.9, None
    where no group has two rewards.
    """

    step: int
    result: Result
    scorer: Scorer | None = None
    unscored: str | None = None
    numerical: bool = False
    """Whether nothing was scored because the model's numbers are not to be trusted."""
    kept_share: float | None = None
