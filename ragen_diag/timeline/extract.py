"""The numbers of one step, by name: the metrics of its result, and those of its reward side."""

from collections.abc import Mapping

from ragen_diag.metrics.metric import Metric
from ragen_diag.timeline.points import Point

FLAT_SHARE = "flat_share"
KEPT_SHARE = "kept_share_rho_0.9"
REWARD_STD = "in_group_reward_std"
REWARD_VAR = "in_group_reward_var"
WITHIN_VAR = "within_prompt_var"
POLICY_ENTROPY = "policy_entropy"
"""H(Z given X) per token of the policy itself: by a scorer that is the policy, else by the dump's
own log-probs."""


def numbers(point: Point) -> Mapping[str, Metric]:
    """Every number of a step; one that is not defined there is None with its reason."""
    reward = point.result.reward
    reason = reward.reason or "no group has two rewards"
    found = dict(point.result.metrics)
    for name, value in (
        (REWARD_STD, reward.in_group_reward_std),
        (REWARD_VAR, reward.in_group_reward_var),
        (WITHIN_VAR, reward.within_prompt_var),
        (FLAT_SHARE, reward.flat_groups.get("flat_share")),
        (KEPT_SHARE, point.kept_share),
    ):
        found[name] = _plain(value, reason, point.result.counts.groups)
    found[POLICY_ENTROPY] = _policy_entropy(point)
    return found


def _plain(value: float | None, reason: str, n: int) -> Metric:
    return Metric.undefined(reason) if value is None else Metric(value=float(value), n=n)


def _policy_entropy(point: Point) -> Metric:
    metrics = point.result.metrics
    if point.scorer is not None and point.scorer.is_policy:
        name = "conditional_entropy_est"
    else:
        name = "rollout_entropy_est"
    return metrics.get(name) or Metric.undefined(
        "neither a checkpoint of this very step nor log-probs in the dump"
    )
