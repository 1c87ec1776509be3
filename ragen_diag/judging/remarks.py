"""What a reader should know beside the verdict; nothing here changes it.

Comes in: the evidence of one batch. Goes out: findings of severity "warning" or "note", each one
sentence with its numbers. Knows neither meaning nor advice.
"""

from collections.abc import Callable, Mapping

from ragen_diag.judging import thresholds as cuts
from ragen_diag.judging.evidence import BatchEvidence
from ragen_diag.judging.findings import Evidence, Finding, Severity
from ragen_diag.metrics.reward_groups import FLAT_REASONS

_GROUPED_BY = {
    "derived_key": "equal prompt and ground truth",
    "contiguous": "blocks of equal prompts in row order",
    "prompt_text": "equal prompt text",
}


def find_remarks(evidence: BatchEvidence) -> list[Finding]:
    """All remarks on a batch, in a fixed order: numbers first, then inputs, then settings."""
    return [found for rule in _RULES if (found := rule(evidence)) is not None]


def _finding(
    code: str, severity: Severity, message: str, evidence: Mapping[str, Evidence] | None = None
) -> Finding:
    return Finding(code=code, severity=severity, message=message, evidence=evidence or {})


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _mi_saturated(evidence: BatchEvidence) -> Finding | None:
    mi_seq, cap = evidence.value("mi_seq_estimate"), evidence.value("mi_upper_bound")
    if mi_seq is None or not cap or mi_seq / cap < cuts.SATURATED:
        return None
    return _finding(
        "mi_saturated",
        "note",
        f"mi_seq_estimate is {mi_seq / cap:.1%} of its cap log P = {cap:.3g} nats: a lower bound.",
        {"mi_seq_estimate": mi_seq, "mi_upper_bound": cap, "threshold": cuts.SATURATED},
    )


def _mi_negative(evidence: BatchEvidence) -> Finding | None:
    metric = evidence.metrics.get("mi_seq_estimate")
    if metric is None or metric.high is None or metric.high >= 0:
        return None
    return _finding(
        "mi_negative",
        "warning",
        f"mi_seq_estimate is below 0 with its whole interval ([{metric.low:.3g}, {metric.high:.3g}]"
        " nats/response): other prompts explain the responses better than their own.",
        {"mi_seq_estimate": metric.value, "low": metric.low, "high": metric.high},
    )


def _zscore_unreliable(evidence: BatchEvidence) -> Finding | None:
    std = evidence.value("marginal_std")
    if std is None or std >= cuts.STD_FLOOR:
        return None
    return _finding(
        "zscore_unreliable",
        "warning",
        f"The marginal std is {std:.2g} nats/token, under {cuts.STD_FLOOR}: MI z-scores explode.",
        {"marginal_std": std, "threshold": cuts.STD_FLOOR},
    )


def _flat_groups(evidence: BatchEvidence) -> Finding | None:
    counts = evidence.reward.flat_groups
    flat, share = counts.get("flat"), counts.get("flat_share")
    if not flat or share is None:
        return None
    by_chance = counts.get("flat_share_by_chance")
    chance = "" if by_chance is None else f"; {by_chance:.1%} would be if all were equally hard"
    reasons = {reason: int(counts.get(reason) or 0) for reason in FLAT_REASONS}
    why = _counted({name.replace("_", " "): count for name, count in reasons.items() if count})
    return _finding(
        "flat_groups",
        "warning" if share >= cuts.FLAT_SHARE else "note",
        f"{flat} of {counts['groups']} groups have no reward variance ({why}){chance}.",
        {name: count for name, count in counts.items() if count or name not in FLAT_REASONS},
    )


def _identical_texts(evidence: BatchEvidence) -> Finding | None:
    groups = evidence.reward.flat_groups.get("identical_texts")
    if not groups:
        return None
    total = evidence.reward.flat_groups["groups"]
    return _finding(
        "identical_texts",
        "warning",
        f"In {groups} of {total} groups all responses are the same text.",
        {"groups_with_one_text": groups, "groups": total},
    )


def _constant_components(evidence: BatchEvidence) -> Finding | None:
    constant = {name: part for name, part in evidence.components.items() if part.constant}
    if not constant:
        return None
    values = ", ".join(f"{name} = {part.low + 0.0:.6g}" for name, part in constant.items())
    return _finding(
        "constant_reward_component",
        "note",
        f"Reward components that never vary: {values}.",
        {name: part.low + 0.0 for name, part in constant.items()},
    )


def _saturated_components(evidence: BatchEvidence) -> Finding | None:
    # A penalty is at its maximum, 0, where there is nothing to penalise.
    saturated = {
        name: part.share_at_high
        for name, part in evidence.components.items()
        if not part.constant and part.high != 0 and part.share_at_high >= cuts.COMPONENT_SATURATED
    }
    if not saturated:
        return None
    shares = ", ".join(f"{name} in {share:.1%} of rows" for name, share in saturated.items())
    return _finding(
        "saturated_reward_component",
        "note",
        f"Reward components at their maximum: {shares}.",
        {**saturated, "threshold": cuts.COMPONENT_SATURATED},
    )


def _cancelling_components(evidence: BatchEvidence) -> Finding | None:
    kept = evidence.variance_kept
    if kept is None or kept >= cuts.COMPONENTS_CANCEL:
        return None
    return _finding(
        "cancelling_reward_components",
        "warning",
        f"Reward components cancel: their sum keeps {kept:.1%} of their variance within prompts.",
        {"variance_kept": kept, "threshold": cuts.COMPONENTS_CANCEL},
    )


def _missing_rewards(evidence: BatchEvidence) -> Finding | None:
    missing = evidence.missing_rewards
    if not missing:
        return None
    return _finding(
        "missing_rewards",
        "warning",
        f"{missing} of {evidence.rows} responses have no finite reward.",
        {"missing": missing, "rows": evidence.rows},
    )


def _rows_excluded(evidence: BatchEvidence) -> Finding | None:
    # What --limit left out was asked for, and is told as a subset of the prompts.
    reasons = {name: n for name, n in evidence.excluded.items() if name != "not_sampled"}
    excluded = sum(reasons.values())
    if not excluded:
        return None
    many = excluded / evidence.rows >= cuts.EXCLUDED_SHARE
    why = _counted({name.replace("_", " "): n for name, n in reasons.items()})
    return _finding(
        "rows_excluded",
        "warning" if many else "note",
        f"{excluded} of {evidence.rows} responses are not scored: {why}.",
        {**reasons, "rows": evidence.rows},
    )


def _reading(evidence: BatchEvidence) -> Finding | None:
    if not evidence.reading:
        return None
    told = ", ".join(f"{name.replace('_', ' ')} ({n})" for name, n in evidence.reading.items())
    return _finding(
        "dump_repaired",
        "note",
        f"Repaired, inferred or left out when the dump was read: {told}.",
        evidence.reading,
    )


def _no_reasoning_tags(evidence: BatchEvidence) -> Finding | None:
    if evidence.has_tags:
        return None
    return _finding(
        "no_reasoning_tags", "note", "No reasoning tags: the whole response is taken as reasoning."
    )


def _multiple_spans(evidence: BatchEvidence) -> Finding | None:
    if not evidence.multiple_spans:
        return None
    return _finding(
        "multiple_spans",
        "note",
        f"{evidence.multiple_spans} responses close their reasoning more than once; it is taken to"
        " end at the first closing tag.",
        {"responses": evidence.multiple_spans},
    )


def _groups_inferred(evidence: BatchEvidence) -> Finding | None:
    inferred = {name: n for name, n in evidence.group_sources.items() if name != "explicit"}
    if not inferred:
        return None
    how = ", ".join(f"{_GROUPED_BY.get(name, name)} ({n} rows)" for name, n in inferred.items())
    return _finding(
        "groups_inferred",
        "warning" if "prompt_text" in inferred else "note",
        f"The dump does not name its groups; rows were grouped by {how}.",
        inferred,
    )


def _steps(evidence: BatchEvidence) -> Finding | None:
    if evidence.scoring is None:
        return None
    dump, checkpoint = evidence.dump_step, evidence.scoring.checkpoint_step
    steps: dict[str, Evidence] = {"dump_step": dump, "checkpoint_step": checkpoint}
    if dump is None or checkpoint is None:
        unknown = [name.removesuffix("_step") for name, step in steps.items() if step is None]
        message = f"The step of the {' and the '.join(unknown)} is unknown."
        return _finding("step_unknown", "note", message, steps)
    if dump == checkpoint:
        return None
    message = f"Rollouts of step {dump} are scored by the checkpoint of step {checkpoint}."
    return _finding("step_mismatch", "warning", message, steps)


def _retokenised(evidence: BatchEvidence) -> Finding | None:
    scoring = evidence.scoring
    if scoring is None or not scoring.retokenised:
        return None
    return _finding(
        "retokenised",
        "note",
        f"{scoring.retokenised} of {scoring.scored_rows} scored rows were encoded from text, so"
        " their tokens may not be the sampled ones.",
        {"retokenised": scoring.retokenised, "scored_rows": scoring.scored_rows},
    )


def _prompt_subset(evidence: BatchEvidence) -> Finding | None:
    scoring = evidence.scoring
    before = scoring.prompts_before_limit if scoring else None
    if scoring is None or before is None or before <= scoring.prompts:
        return None
    return _finding(
        "prompt_subset",
        "note",
        f"{scoring.prompts} of {before} distinct prompts are scored.",
        {"prompts": scoring.prompts, "prompts_in_step": before},
    )


def _settings_compat(evidence: BatchEvidence) -> Finding | None:
    if evidence.scoring is None or evidence.scoring.compat == "none":
        return None
    return _finding(
        "settings_compat",
        "note",
        "Means and per-token metrics follow the public implementation, not Eq. 1.",
        {"compat": evidence.scoring.compat},
    )


def _settings_temperature(evidence: BatchEvidence) -> Finding | None:
    if evidence.scoring is None or evidence.scoring.temperature == 1.0:
        return None
    temperature = evidence.scoring.temperature
    return _finding(
        "settings_temperature",
        "note",
        f"Responses are scored at temperature {temperature:g}.",
        {"temperature": temperature},
    )


def _reference(evidence: BatchEvidence) -> Finding | None:
    if evidence.scoring is None:
        return None
    if evidence.baseline is None:
        return _finding(
            "thresholds_provisional",
            "note",
            "Without a baseline the thresholds are provisional absolutes.",
        )
    names = ("retrieval_skill", "mi_seq_estimate", "conditional_entropy_est")
    values = {name: found.value for name in names if (found := evidence.baseline.get(name))}
    return _finding("baseline_used", "note", "Thresholds are relative to a baseline.", dict(values))


_RULES: tuple[Callable[[BatchEvidence], Finding | None], ...] = (
    _mi_saturated,
    _mi_negative,
    _zscore_unreliable,
    _flat_groups,
    _identical_texts,
    _constant_components,
    _saturated_components,
    _cancelling_components,
    _missing_rewards,
    _rows_excluded,
    _no_reasoning_tags,
    _multiple_spans,
    _reading,
    _groups_inferred,
    _steps,
    _retokenised,
    _prompt_subset,
    _settings_compat,
    _settings_temperature,
    _reference,
)
