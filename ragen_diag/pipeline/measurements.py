"""A step and its scores -> its metrics, by the names of the result.

Hands the arrays to `metrics` and names what comes back. Holds no formula of its own, no threshold
and no wording.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ragen_diag.groups import Groups
from ragen_diag.metrics.agreement import PER_TOKEN, RolloutGap, own_margin, rollout_gap
from ragen_diag.metrics.answers import distinct_answer_ratio
from ragen_diag.metrics.information import PER_RESPONSE, UNITS, measure
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.mixture import RowScores, row_scores
from ragen_diag.metrics.phantom import length_correlations
from ragen_diag.metrics.retrieval import retrieval_credit
from ragen_diag.metrics.reward_groups import MIN_TEXTS, RewardRows
from ragen_diag.metrics.text import (
    distinct_ratio,
    normal,
    repetition,
    top1_share,
)
from ragen_diag.metrics.uncertainty import Bootstrap, bootstrap
from ragen_diag.pipeline.step import Step
from ragen_diag.pipeline.tables import ScoredRows
from ragen_diag.scoring.scores import Scores
from ragen_diag.settings import Scope, Settings
from ragen_diag.spans import SpanStatus


def step_metrics(step: Step, rewards: RewardRows, settings: Settings) -> dict[str, Metric]:
    """Metrics of the texts and rewards, which need no model."""
    metrics = {
        "valid_thinking_rate": _valid_thinking_rate(step, settings),
        "reward_mean": _mean_over_groups(
            rewards.reward_N, step.groups, settings, "no finite reward"
        ),
        "truncated_share": (
            step.truncation.share
            if step.truncation is not None
            else Metric.undefined("the dump has neither finish reasons nor token ids")
        ),
        "distinct_ratio": distinct_ratio([normal(text) for text in step.responses]),
        "distinct_ratio_in_groups": _distinct_in_groups(rewards, settings),
        **_answer_metrics(step, settings),
        "response_length": _response_length(step, settings),
        "reward_length_correlation": _length_correlation(step, rewards, settings),
    }
    if step.success_N is not None:
        reason = "no finite success value"
        metrics["success_rate"] = _mean_over_groups(step.success_N, step.groups, settings, reason)
    return metrics


@dataclass(frozen=True)
class Scored:
    """What the model's scores say: metrics, per-row values, agreement with the dump's own."""

    metrics: dict[str, Metric]
    rows: ScoredRows
    gap: RolloutGap


TEXT_UNITS = {
    "top1_share": "",
    "reasoning_length": "tokens",
    "repetition": "",
    "rollout_logprob_gap": "nats/token",
}
"""Metrics of the scored reasoning beside those of `information.UNITS`."""


def nothing_scored(reason: str) -> dict[str, Metric]:
    """Every metric of `scored_metrics`, undefined."""
    units = {**UNITS, **TEXT_UNITS}
    return {name: Metric.undefined(reason, unit=unit) for name, unit in units.items()}


def scored_metrics(step: Step, groups: Groups, scores: Scores, settings: Settings) -> Scored:
    """Metrics that rest on the cross-scores, and those of the scored reasoning texts."""
    own_R, n_tokens_R = scores.own_R, scores.n_tokens_R
    cluster_R = _drawn_together(step, groups, settings.scope)
    metrics = measure(
        scores.logp_RP,
        n_tokens_R,
        own_R,
        cluster_R=cluster_R,
        compat=settings.compat,
        resamples=settings.resamples,
        seed=settings.seed,
    )
    per_row = row_scores(scores.logp_RP, n_tokens_R, own_R)
    gap = rollout_gap(scores.own_logp_R, groups.rollout_logp_R)
    draws = bootstrap(
        own_R,
        block_R=per_row.candidates.block_P[own_R],
        cluster_R=cluster_R,
        resamples=settings.resamples,
        seed=settings.seed,
    )
    texts = [step.reasoning.get(int(row), "") for row in groups.row_R]
    metrics |= {
        "top1_share": top1_share(texts, draws),
        "reasoning_length": draws.metric(
            draws.mean_over_prompts(n_tokens_R.astype(np.float64)), unit="tokens"
        ),
        "repetition": repetition(groups.reasoning_ids_R),
        "rollout_logprob_gap": gap.bias,
        **_gap_metrics(gap),
        **_rollout_entropy(groups, settings),
    }
    return Scored(metrics, _scored_rows(groups, scores, per_row), gap)


def _gap_metrics(gap: RolloutGap) -> dict[str, Metric]:
    """What else of the gap is worth following over steps; nothing without log-probs."""
    if not gap.tokens:
        return {}
    nats = {
        "rollout_logprob_gap_mean": gap.mean,
        "rollout_logprob_spread": gap.spread,
        "rollout_logprob_spread_median": gap.median_absolute,
        "rollout_logprob_spread_p99": gap.p99_absolute,
    }
    shares = {
        "rollout_logprob_extremes": gap.extremes / gap.tokens,
        "rollout_logprob_top_share": gap.top_share,
    }
    metrics = {
        name: Metric(value=value, unit=PER_TOKEN, n=gap.tokens) for name, value in nats.items()
    }
    return metrics | {
        name: Metric(value=value, n=gap.tokens)
        if value is not None
        else Metric.undefined("all log-probs are exactly ours")
        for name, value in shares.items()
    }


def _rollout_entropy(groups: Groups, settings: Settings) -> dict[str, Metric]:
    """H(Z given X) of the policy that sampled, whatever the scorer: minus the dump's own log-probs,
    the mean over prompts. Nothing without log-probs."""
    known = {
        r: (-float(logp_T.mean()), -float(logp_T.sum()))
        for r, logp_T in enumerate(groups.rollout_logp_R)
        if logp_T is not None and np.isfinite(logp_T).all()
    }
    if not known:
        return {}
    own_R = np.unique(groups.own_R[list(known)], return_inverse=True)[1].astype(np.int64)
    draws = bootstrap(own_R, resamples=settings.resamples, seed=settings.seed)
    per_token_R, per_response_R = np.array(list(known.values())).T
    return {
        "rollout_entropy_est": draws.metric(draws.mean_over_prompts(per_token_R), unit=PER_TOKEN),
        "rollout_entropy_seq_est": draws.metric(
            draws.mean_over_prompts(per_response_R), unit=PER_RESPONSE
        ),
    }


def _drawn_together(step: Step, groups: Groups, scope: Scope) -> NDArray[np.int64]:
    """What each scored response is drawn with: its prompt, or all that began with it."""
    if scope.kind == "first_turn":
        return groups.own_R
    tasks = [step.groups[row] for row in groups.row_R]
    return np.unique(tasks, return_inverse=True)[1].astype(np.int64)


def _scored_rows(groups: Groups, scores: Scores, per_row: RowScores) -> ScoredRows:
    logp_RP, own_R = scores.logp_RP, scores.own_R
    return ScoredRows(
        row_R=groups.row_R,
        own_R=own_R,
        n_tokens_R=scores.n_tokens_R,
        matched_R=per_row.matched_seq_R,
        marginal_R=per_row.marginal_seq_R,
        best_column_R=logp_RP.argmax(axis=1),
        margin_R=own_margin(logp_RP, own_R) if logp_RP.shape[1] > 1 else None,
        credit_R=retrieval_credit(logp_RP, own_R),
    )


def _draws(groups: Sequence[str], settings: Settings) -> Bootstrap:
    _, cluster = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    return bootstrap(cluster, resamples=settings.resamples, seed=settings.seed)


def _valid_thinking_rate(step: Step, settings: Settings) -> Metric:
    if step.choice.tags is None:
        return Metric.undefined(step.choice.reason, n=step.table.height)
    # A response that the dump does not have tells nothing of the policy's format.
    known_N = step.table["response"].is_not_null().to_numpy()
    valid_N = np.array([span.status is SpanStatus.VALID for span in step.spans], dtype=np.float64)
    valid_N[~known_N] = np.nan
    return _mean_over_groups(valid_N, step.groups, settings, "no response has a text")


def _mean_over_groups(
    values_N: NDArray[np.float64], groups: Sequence[str], settings: Settings, reason: str
) -> Metric:
    finite_N = np.isfinite(values_N)
    if not finite_N.any():
        return Metric.undefined(reason, n=0)
    kept = [group for group, finite in zip(groups, finite_N, strict=True) if finite]
    draws = _draws(kept, settings)
    return draws.metric(draws.mean_over_rows(values_N[finite_N]))


def _response_length(step: Step, settings: Settings) -> Metric:
    if step.lengths_N is None:
        return Metric.undefined("token counts need ids in the dump or a tokenizer", unit="tokens")
    draws = _draws(step.groups, settings)
    values_N = np.asarray(step.lengths_N, dtype=np.float64)
    return draws.metric(draws.mean_over_rows(values_N), unit="tokens")


def _distinct_in_groups(rewards: RewardRows, settings: Settings) -> Metric:
    ratios = {
        group: texts.normal / texts.texts
        for group, texts in rewards.distinct.items()
        if texts.texts >= MIN_TEXTS
    }
    return _mean_of(ratios, settings, "no group has two responses")


def _length_correlation(step: Step, rewards: RewardRows, settings: Settings) -> Metric:
    # Where tokens were not counted, the ranks of characters are nearly theirs.
    characters = step.table["response"].str.len_chars()
    lengths = characters if step.lengths_N is None else pl.Series(step.lengths_N)
    length_N = lengths.cast(pl.Float64).fill_null(np.nan).to_numpy()
    found = length_correlations(rewards, length_N)
    return _mean_of(found, settings, "no group varies in reward and in response length")


def _mean_of(value_of: Mapping[str, float], settings: Settings, reason: str) -> Metric:
    """Mean over groups that have a value, each weighing the same; `n` counts groups."""
    values_G = np.array(list(value_of.values()), dtype=np.float64)
    return _mean_over_groups(values_G, list(value_of), settings, reason)


def _answer_metrics(step: Step, settings: Settings) -> dict[str, Metric]:
    """How often answers are empty, the same, and the same for different prompts."""
    rows = step.answer_rows
    pairs = [(g, t) for g, t in zip(step.groups, rows.texts, strict=True) if t is not None]
    if not pairs:
        undefined = Metric.undefined("no response tells its answer from the rest")
        return dict.fromkeys(
            ("empty_answer_rate", "answer_top1_share", "distinct_answer_ratio"), undefined
        )
    groups, texts = zip(*pairs, strict=True)
    empty_N = np.array([text == "" for text in texts], dtype=np.float64)
    return {
        "empty_answer_rate": _mean_over_groups(empty_N, groups, settings, ""),
        "answer_top1_share": top1_share(texts, _draws(groups, settings)),
        "distinct_answer_ratio": Metric(value=distinct_answer_ratio(rows), n=len(rows.by_group)),
    }
