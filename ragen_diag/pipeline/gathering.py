"""Values of the stages -> the metrics of a step and the evidence that findings rest on.

Puts together, computes no formula of its own. Knows no thresholds and no wording.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ragen_diag.groups import Groups
from ragen_diag.judging.evidence import BatchEvidence, ScoringEvidence
from ragen_diag.metrics.agreement import RolloutGap, share_within_noise
from ragen_diag.metrics.answers import answer_summary
from ragen_diag.metrics.components import component_ranges, variance_kept
from ragen_diag.metrics.garble import (
    disorder,
    mixed_script_share,
    replacement_share,
    script_mix,
)
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.phantom import phantom_variance
from ragen_diag.metrics.reward import reward_signal
from ragen_diag.metrics.reward_groups import RewardRows
from ragen_diag.metrics.text import used_vocabulary
from ragen_diag.pipeline.measurements import nothing_scored, step_metrics
from ragen_diag.pipeline.modelled import Modelled
from ragen_diag.pipeline.step import Step, distinct_prompts
from ragen_diag.pipeline.tables import response_id
from ragen_diag.pipeline.versions import policy_versions
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import Settings


def gather_evidence(
    rollouts: Rollouts,
    step: Step,
    modelled: Modelled | None,
    rewards: RewardRows,
    settings: Settings,
    *,
    baseline: Mapping[str, Metric] | None,
) -> BatchEvidence:
    """All that is known about one step."""
    excluded = {} if modelled is None else modelled.groups.excluded
    evidence = BatchEvidence(
        metrics=_metrics(step, modelled, rewards, settings),
        reward=reward_signal(rewards),
        rows=step.table.height,
        scoring=None if modelled is None else _scoring(step, modelled, settings),
        baseline=baseline,
        dump_step=rollouts.steps[0],
        scope=str(settings.scope),
        reading=rollouts.notes,
        excluded=dict(sorted(Counter(excluded.values()).items())),
        missing_rewards=int(np.count_nonzero(~np.isfinite(rewards.reward_N))),
        group_sources=dict(sorted(Counter(step.table["group_source"].to_list()).items())),
        answers=answer_summary(step.answer_rows),
        phantom=phantom_variance(rewards),
        components=component_ranges(step.components),
        variance_kept=variance_kept(rewards.reward_N, step.components, rewards.group_N),
    )
    return _with_texts(evidence, step)


def _with_texts(evidence: BatchEvidence, step: Step) -> BatchEvidence:
    """With what the texts, and what the trainer noted beside them, tell."""
    texts = list(step.reasoning.values()) or step.responses
    truncation = step.truncation
    versions = policy_versions(step.table["extra"])
    return replace(
        evidence,
        has_tags=step.choice.tags is not None,
        multiple_spans=sum(span.closes > 1 for span in step.spans),
        replacement_share=replacement_share(texts),
        script_mix=script_mix(texts),
        mixed_scripts=mixed_script_share(texts),
        disorder=disorder(texts),
        truncation_how="" if truncation is None else truncation.how,
        share_at_longest=None if truncation is None else truncation.share_at_longest,
        policy_versions=versions.rows,
        spanning=versions.spanning,
    )


def _metrics(
    step: Step, modelled: Modelled | None, rewards: RewardRows, settings: Settings
) -> dict[str, Metric]:
    metrics = step_metrics(step, rewards, settings)
    if modelled is None:
        return metrics
    if modelled.measured is None:
        return metrics | nothing_scored("no response has reasoning to score")
    return metrics | modelled.measured.metrics


def _named(gap: RolloutGap | None, groups: Groups) -> str:
    """The id of the response with the token of the largest gap."""
    largest = None if gap is None else gap.largest
    return "" if largest is None else response_id(int(groups.row_R[largest[0]]))


def _scoring(step: Step, modelled: Modelled, settings: Settings) -> ScoringEvidence:
    groups, scores, measured = modelled.groups, modelled.scores, modelled.measured
    gap = None if measured is None else measured.gap
    return ScoringEvidence(
        scored_rows=len(groups.row_R),
        prompts=len(groups.prompt_ids_P),
        used_vocabulary=used_vocabulary(groups.reasoning_ids_R),
        noise_per_token=0.0 if scores is None else scores.noise.per_token,
        noise_per_response=0.0 if scores is None else scores.noise.per_response,
        rows_within_noise=(
            None
            if scores is None
            else share_within_noise(scores.logp_RP, scores.noise.per_response)
        ),
        gap=gap,
        largest_response=_named(gap, groups),
        retokenised=groups.retokenised,
        prompt_forms=dict(sorted(Counter(groups.form_R).items())),
        logprobs_lacking=groups.logprobs_lacking,
        double_bos=groups.checks.double_bos,
        quantised=modelled.checkpoint.quantised,
        experts=modelled.checkpoint.experts,
        against_template=modelled.against_template,
        formats=modelled.formats,
        temperatures=modelled.temperatures,
        checkpoint_step=modelled.checkpoint.step,
        prompts_before_limit=(
            distinct_prompts(step.table) if "not_sampled" in groups.excluded.values() else None
        ),
        compat=settings.compat,
        temperature=settings.temperature,
        yardstick=settings.yardstick,
    )
