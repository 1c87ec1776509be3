"""Remarks on what was read and scored, and by which settings."""

from collections.abc import Callable, Mapping

from ragen_diag.judging import thresholds as cuts
from ragen_diag.judging.evidence import BatchEvidence
from ragen_diag.judging.findings import Evidence, Finding, counted, finding

ATTENTION: Mapping[str, str] = {
    "ids_unique_per_row": "every row had a group id of its own and was grouped by its prompt",
    "ids_contradict_prompts": "group ids cut across the prompts, so rows were grouped by prompt",
    "group_id_with_several_prompts": "groups hold several prompts",
    "imprecise_id": "ids came as numbers too large to be exact, so different ones may be one",
    "repaired_prompt": "prompts held bytes that are no text, and those alone may tell them apart",
    "no_reward_column": "files of rows have no column for the reward that others have",
    "unweighted_reward_sum": "the reward is a sum without the trainer's weights",
    "reward_list_summed": "a list of rewards was summed",
    "reward_per_token_summed": "a reward for each token was summed",
    "turns_of_no_trajectory": "later turns name no trajectory, so what they earned does not count",
    "rows_of_no_turn": "several rows of a trajectory name no turn, so each is taken as its first",
    "turn_rewards_summed": "the rewards of turns were summed",
    "unaligned_rewards": "rewards may not be those of their rows",
    "reward_differs_from_score": "reward and score differ",
    "two_reward_columns": "a second column could be the reward",
    "later_turns_ignored": "later answers were left out",
    "step_written_twice": "a step was written twice and these rows left out",
    "exact_duplicate_rows": "rows are exact copies of others",
    "file_passed_over": "files were passed over",
    "bad_line": "lines hold no record",
    "torn_line": "the last line is cut off",
}
"""Notes of the reader that change how numbers should be read; the others are harmless repairs."""

_GROUPED_BY = {
    "derived_key": "equal prompt and ground truth",
    "contiguous": "blocks of equal prompts in row order",
    "prompt_text": "equal prompt text",
}
_MOST_VERSIONS = 6


def _rows_excluded(evidence: BatchEvidence) -> Finding | None:
    # What --limit left out was asked for, and is told as a subset of the prompts.
    reasons = {name: n for name, n in evidence.excluded.items() if name != "not_sampled"}
    excluded = sum(reasons.values())
    if not excluded:
        return None
    many = excluded / evidence.rows >= cuts.EXCLUDED_SHARE
    why = counted(reasons)
    return finding(
        "rows_excluded",
        "warning" if many else "note",
        f"{excluded} of {evidence.rows} responses are not scored: {why}.",
        {**reasons, "rows": evidence.rows},
    )


def _no_reasoning_tags(evidence: BatchEvidence) -> Finding | None:
    if evidence.has_tags:
        return None
    return finding(
        "no_reasoning_tags", "note", "No reasoning tags: the whole response is taken as reasoning."
    )


def _multiple_spans(evidence: BatchEvidence) -> Finding | None:
    if not evidence.multiple_spans:
        return None
    return finding(
        "multiple_spans",
        "note",
        f"{evidence.multiple_spans} responses close their reasoning more than once; it is taken to"
        " end at the first closing tag.",
        {"responses": evidence.multiple_spans},
    )


def _attention(evidence: BatchEvidence) -> Finding | None:
    found = {name: n for name, n in evidence.reading.items() if name in ATTENTION}
    if not found:
        return None
    told = ", ".join(f"{ATTENTION[name]} ({n})" for name, n in found.items())
    return finding(
        "dump_needs_attention",
        "warning",
        f"Numbers rest on a reading that may not be meant: {told}.",
        found,
    )


def _reading(evidence: BatchEvidence) -> Finding | None:
    repairs = {name: n for name, n in evidence.reading.items() if name not in ATTENTION}
    if not repairs:
        return None
    told = ", ".join(f"{name.replace('_', ' ')} ({n})" for name, n in repairs.items())
    return finding(
        "dump_repaired",
        "note",
        f"Repaired, inferred or left out when the dump was read: {told}.",
        repairs,
    )


def _groups_inferred(evidence: BatchEvidence) -> Finding | None:
    inferred = {name: n for name, n in evidence.group_sources.items() if name != "explicit"}
    if not inferred:
        return None
    how = ", ".join(f"{_GROUPED_BY.get(name, name)} ({n} rows)" for name, n in inferred.items())
    return finding(
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
        return finding("step_unknown", "note", message, steps)
    if dump == checkpoint:
        return None
    message = f"Rollouts of step {dump} are scored by the checkpoint of step {checkpoint}."
    return finding("step_mismatch", "warning", message, steps)


def _policy_versions(evidence: BatchEvidence) -> Finding | None:
    versions = evidence.policy_versions
    if len(versions) < 2 and not evidence.spanning:
        return None
    shown = ", ".join(f"{name} ({n} rows)" for name, n in list(versions.items())[:_MOST_VERSIONS])
    more = len(versions) - _MOST_VERSIONS
    rest = f" and {more} more" if more > 0 else ""
    return finding(
        "mixed_policy_versions",
        "warning",
        f"The rows are of policy versions {shown}{rest}; {evidence.spanning} rows span several.",
        {
            "versions": len(versions),
            "rows_spanning_several": evidence.spanning,
            "rows_with_a_version": sum(versions.values()),
            **{f"rows_of_{name}": n for name, n in list(versions.items())[:_MOST_VERSIONS]},
        },
    )


def _later_turns(evidence: BatchEvidence) -> Finding | None:
    uniform = evidence.scope == "trajectory_uniform"
    # Where nothing was to be drawn from, all turns are first ones.
    alone = uniform and "turn_not_drawn" not in evidence.reading
    if evidence.scope in ("first_turn", "turn_0") or alone:
        return None
    rewards = "" if uniform else " Rewards are those of trajectories that came so far, no others."
    return finding(
        "later_turns",
        "warning",
        f"The turns of scope {evidence.scope} are measured: the prompt of a later turn holds what"
        f" the model itself wrote before.{rewards}",
        {"scope": evidence.scope},
    )


def _prompt_subset(evidence: BatchEvidence) -> Finding | None:
    scoring = evidence.scoring
    before = scoring.prompts_before_limit if scoring else None
    if scoring is None or before is None or before <= scoring.prompts:
        return None
    return finding(
        "prompt_subset",
        "note",
        f"{scoring.prompts} of {before} distinct prompts are scored.",
        {"prompts": scoring.prompts, "prompts_in_step": before},
    )


def _settings_compat(evidence: BatchEvidence) -> Finding | None:
    if evidence.scoring is None or evidence.scoring.compat == "none":
        return None
    return finding(
        "settings_compat",
        "note",
        "Means and per-token metrics follow the public implementation, not Eq. 1.",
        {"compat": evidence.scoring.compat},
    )


def _settings_temperature(evidence: BatchEvidence) -> Finding | None:
    if evidence.scoring is None or evidence.scoring.temperature == 1.0:
        return None
    temperature = evidence.scoring.temperature
    return finding(
        "settings_temperature",
        "note",
        f"Responses are scored at temperature {temperature:g}.",
        {"temperature": temperature},
    )


def _reference(evidence: BatchEvidence) -> Finding | None:
    if evidence.scoring is None:
        return None
    if evidence.baseline is None:
        return finding(
            "thresholds_provisional",
            "note",
            "Without a baseline the thresholds are provisional absolutes.",
        )
    names = ("retrieval_skill", "mi_seq_estimate", "conditional_entropy_est")
    values = {name: found.value for name in names if (found := evidence.baseline.get(name))}
    return finding("baseline_used", "note", "Thresholds are relative to a baseline.", dict(values))


RULES: tuple[Callable[[BatchEvidence], Finding | None], ...] = (
    _rows_excluded,
    _no_reasoning_tags,
    _multiple_spans,
    _attention,
    _reading,
    _groups_inferred,
    _steps,
    _policy_versions,
    _later_turns,
    _prompt_subset,
    _settings_compat,
    _settings_temperature,
    _reference,
)
