"""The reward side of a result as short texts, still to be escaped by each renderer."""

from ragen_diag.metrics.reward import RewardSignal
from ragen_diag.report.numbers import amount, number, plural
from ragen_diag.report.words import APPLICABILITY, plain_code

BUCKET_HEAD = ("bucket", "groups", "lowest variance", "mean", "highest", "mean std")


def flat_groups(reward: RewardSignal) -> str:
    """Share of groups without reward differences, in words."""
    share = reward.flat_groups.get("flat_share")
    groups = int(reward.flat_groups.get("groups") or 0)
    if share is None:
        return f"n/a: none of {plural(groups, 'group')} has two rewards to compare"
    groups = int(reward.flat_groups.get("compared") or groups)
    text = f"{number(share, share=True)} % of {plural(groups, 'group')} flat"
    chance = reward.flat_groups.get("flat_share_by_chance")
    return text if chance is None else f"{text}, {number(chance, share=True)} % by chance"


def applicability(reward: RewardSignal) -> str:
    """Whether filtering by reward variance would help, with the number behind it."""
    text = APPLICABILITY.get(reward.applicability, reward.applicability)
    if reward.cv_std is None:
        return f"{text} ({reward.reason})" if reward.reason else text
    return f"CV of std {number(reward.cv_std)}: {text}"


def reward_rows(reward: RewardSignal) -> list[tuple[str, str]]:
    """The reward side as label and value."""
    return [
        ("mean reward", amount(reward.mean, reason=reward.reason)),
        ("variance, all rewards pooled", amount(reward.pooled_var)),
        ("between prompts", amount(reward.between_prompt_var)),
        ("within prompts: the only part that is signal", amount(reward.within_prompt_var)),
        ("mean variance of a group", amount(reward.in_group_reward_var)),
        ("mean standard deviation of a group", amount(reward.in_group_reward_std)),
        ("CV of group standard deviations", amount(reward.cv_std)),
        ("CV of group variances", amount(reward.cv_var)),
    ]


def flat_rows(reward: RewardSignal) -> list[tuple[str, str]]:
    """Why groups are flat: reason and number of groups."""
    totals = {"groups", "compared", "flat", "flat_share", "flat_share_by_chance"}
    return [
        (plain_code(reason).lower(), f"{n:,}")
        for reason, n in reward.flat_groups.items()
        if n and reason not in totals
    ]


def bucket_rows(reward: RewardSignal) -> list[tuple[str, ...]]:
    """The buckets by reward variance, Q1 lowest, as texts under `BUCKET_HEAD`."""
    return [
        (
            bucket.name,
            f"{bucket.groups:,}",
            *(
                amount(value)
                for value in (bucket.rv_min, bucket.rv_mean, bucket.rv_max, bucket.std_mean)
            ),
        )
        for bucket in reward.buckets
        if bucket.groups
    ]
