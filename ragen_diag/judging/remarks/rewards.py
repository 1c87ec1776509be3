"""Remarks on rewards: where their variance comes from, and what they are paid for."""

import math
from collections.abc import Callable, Mapping

from ragen_diag.judging import thresholds as cuts
from ragen_diag.judging.evidence import BatchEvidence
from ragen_diag.judging.findings import Finding, counted, finding
from ragen_diag.metrics.answers import AnswerSummary
from ragen_diag.metrics.reward_groups import FLAT_REASONS, UNCOMPARED

_LONGEST_ANSWER = 80


def _flat_groups(evidence: BatchEvidence) -> Finding | None:
    counts = evidence.reward.flat_groups
    flat, share = counts.get("flat"), counts.get("flat_share")
    if not flat or share is None:
        return None
    by_chance = counts.get("flat_share_by_chance")
    chance = "" if by_chance is None else f"; {by_chance:.1%} would be if all were equally hard"
    reasons: dict[str, int] = {
        name: int(counts.get(name) or 0) for name in FLAT_REASONS if name not in UNCOMPARED
    }
    why = counted({name: count for name, count in reasons.items() if count})
    excess = None if by_chance is None else share - by_chance
    return finding(
        "flat_groups",
        "warning" if share >= cuts.FLAT_SHARE and not _by_chance(evidence) else "note",
        f"{flat} of {counts['compared']} groups have no reward variance ({why}){chance}.",
        {name: count for name, count in counts.items() if count or name not in FLAT_REASONS}
        | {"excess_over_chance": excess, "flat_with_different_texts": _different_texts(reasons)},
    )


def _different_texts(reasons: Mapping[str, int]) -> int:
    """Flat groups whose responses differ in text and were not all cut off."""
    levels = ("all_solved", "all_failed", "mid_value", "constant_batch")
    return sum(reasons[name] for name in levels)


def _by_chance(evidence: BatchEvidence) -> bool:
    """Whether groups of this size are as often flat where every prompt is equally hard."""
    counts = evidence.reward.flat_groups
    share, by_chance = counts.get("flat_share"), counts.get("flat_share_by_chance")
    if share is None or by_chance is None:
        return False
    error = math.sqrt(by_chance * (1.0 - by_chance) / (counts.get("compared") or 1))
    return share <= by_chance + cuts.CHANCE_ERRORS * error


def _groups_not_compared(evidence: BatchEvidence) -> Finding | None:
    counts = evidence.reward.flat_groups
    groups, compared = counts.get("groups") or 0, counts.get("compared") or 0
    missing = groups - compared
    if missing <= 0:
        return None
    return finding(
        "groups_not_compared",
        "warning" if missing >= cuts.FLAT_SHARE * groups else "note",
        f"{missing} of {groups} groups have fewer than two rewards, so nothing can be told of their"
        " variance.",
        {"groups": groups, **{reason: counts.get(reason) for reason in UNCOMPARED}},
    )


def _small_groups(evidence: BatchEvidence) -> Finding | None:
    size, counts = evidence.reward.median_group_size, evidence.reward.flat_groups
    share, by_chance = counts.get("flat_share"), counts.get("flat_share_by_chance")
    if size is None or not 1 < size <= cuts.SMALL_GROUPS or not share or by_chance is None:
        return None
    if by_chance < cuts.MOSTLY_CHANCE * share:
        return None
    return finding(
        "small_groups",
        "warning",
        f"With a median of {size:g} rewards per group chance alone makes {by_chance:.1%} of groups"
        f" flat, of {share:.1%} seen.",
        {
            "median_group_size": size,
            "flat_share": share,
            "flat_share_by_chance": by_chance,
            "threshold": cuts.SMALL_GROUPS,
        },
    )


def _few_distinct_texts(evidence: BatchEvidence) -> Finding | None:
    ratio = evidence.value("distinct_ratio_in_groups")
    if ratio is None or ratio > cuts.DISTINCT_IN_GROUPS:
        return None
    counts = evidence.reward.flat_groups
    return finding(
        "few_distinct_texts",
        "warning",
        f"Of a group's responses {ratio:.1%} are different texts, on average.",
        {
            "distinct_ratio_in_groups": ratio,
            "in_group_reward_var": evidence.reward.in_group_reward_var,
            "flat_with_one_text": counts.get("identical_texts"),
            "threshold": cuts.DISTINCT_IN_GROUPS,
        },
    )


def _identical_texts(evidence: BatchEvidence) -> Finding | None:
    groups = evidence.reward.flat_groups.get("identical_texts")
    if not groups:
        return None
    total = evidence.reward.flat_groups["groups"]
    return finding(
        "identical_texts",
        "warning",
        f"In {groups} of {total} groups all responses are the same text.",
        {"groups_with_one_text": groups, "groups": total},
    )


def _phantom_variance(evidence: BatchEvidence) -> Finding | None:
    phantom = evidence.phantom
    if phantom is None or phantom.share < cuts.PHANTOM_VARIANCE:
        return None
    return finding(
        "phantom_variance",
        "warning",
        f"{phantom.groups} of {phantom.varying} groups with differing rewards have no difference in"
        f" success; they hold {phantom.share:.1%} of the reward variance within prompts.",
        {
            "groups": phantom.groups,
            "groups_without_success": phantom.failed,
            "varying_groups": phantom.varying,
            "share_of_variance": phantom.share,
            "threshold": cuts.PHANTOM_VARIANCE,
        },
    )


def _reward_follows_length(evidence: BatchEvidence) -> Finding | None:
    metric, phantom = evidence.metrics.get("reward_length_correlation"), evidence.phantom
    if metric is None or metric.value is None or metric.value < cuts.LENGTH_CORRELATION:
        return None
    clear = metric.low is not None and metric.low > 0
    if not clear or phantom is None or phantom.share < cuts.PHANTOM_VARIANCE:
        return None
    return finding(
        "reward_follows_length",
        "warning",
        f"Within groups longer responses earn more (rank correlation {metric.value:.2f}), while"
        " success does not tell them apart.",
        {
            "reward_length_correlation": metric.value,
            "low": metric.low,
            "high": metric.high,
            "threshold": cuts.LENGTH_CORRELATION,
        },
    )


def _empty_answers_rewarded(evidence: BatchEvidence) -> Finding | None:
    found = evidence.answers
    if found is None or not found.empty_scored or not _good(found):
        return None
    # Where all are empty and rewards differ, answers stand elsewhere than they were looked for.
    elsewhere = found.empty == found.answers and found.varies
    if elsewhere or found.empty_at_best / found.empty_scored < cuts.EMPTY_REWARDED:
        return None
    return finding(
        "empty_answers_rewarded",
        "warning",
        f"{found.empty_at_best} of {found.empty_scored} empty answers earn {found.best:.3g}, the"
        " most that any response earns.",
        {
            "empty_answers": found.empty,
            "empty_at_best": found.empty_at_best,
            "answers": found.answers,
            "missing_answers": found.missing,
            "best": found.best,
            "threshold": cuts.EMPTY_REWARDED,
        },
    )


def _good(found: AnswerSummary) -> bool:
    """Whether the most that a response earned is worth having: above others, or above 0."""
    return found.best is not None and (found.varies or found.best > 0)


def _answers_independent(evidence: BatchEvidence) -> Finding | None:
    found = evidence.answers
    if found is None or found.prompts < cuts.MIN_PROMPTS or not _good(found):
        return None
    # One expected answer for all prompts is given rightly to all.
    if found.truths == 1 or found.sharing / found.prompts < cuts.SHARING_PROMPTS:
        return None
    if found.at_best is None or found.at_best < cuts.REWARD_SATURATED:
        return None
    return finding(
        "answers_independent_of_prompt",
        "warning",
        f"{found.sharing} of {found.prompts} prompts have the same commonest answer, while"
        f" {found.at_best:.1%} of responses earn {found.best:.3g}, the most that any does.",
        {
            "prompts_sharing": found.sharing,
            "prompts": found.prompts,
            "commonest_answer": (found.commonest or "(empty)")[:_LONGEST_ANSWER],
            "expected_answers": found.truths,
            "share_at_best": found.at_best,
            "best": found.best,
            "threshold_prompts": cuts.SHARING_PROMPTS,
            "threshold_reward": cuts.REWARD_SATURATED,
        },
    )


def _missing_rewards(evidence: BatchEvidence) -> Finding | None:
    missing = evidence.missing_rewards
    if not missing:
        return None
    return finding(
        "missing_rewards",
        "warning",
        f"{missing} of {evidence.rows} responses have no finite reward.",
        {"missing": missing, "rows": evidence.rows},
    )


RULES: tuple[Callable[[BatchEvidence], Finding | None], ...] = (
    _flat_groups,
    _groups_not_compared,
    _small_groups,
    _few_distinct_texts,
    _identical_texts,
    _phantom_variance,
    _reward_follows_length,
    _empty_answers_rewarded,
    _answers_independent,
    _missing_rewards,
)
