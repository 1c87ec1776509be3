"""What each metric is called, how it is written, and how it is defined.

Names are those of `Result.metrics` (the public implementation's logs). A name that is not listed
still renders, under its own name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ragen_diag.metrics.metric import Metric
from ragen_diag.report.numbers import amount, interval

GROUPS = ("Dependence on the prompt", "Variety", "Form of the responses", "Reward", "Other")


@dataclass(frozen=True, kw_only=True)
class Term:
    """One metric's label, group of the table, and definition.

    `share` numbers are written in per cent. `low_above` marks the metrics whose *high* values put
    an axis on its low side, such as the share of the commonest text.
    """

    label: str
    group: str
    definition: str = ""
    share: bool = False
    low_above: bool = False


_MI, _ENTROPY, _FORM, _REWARD, _OTHER = GROUPS

TERMS: Mapping[str, Term] = {
    "retrieval_skill": Term(
        label="retrieval skill",
        group=_MI,
        definition="(accuracy - chance) / (1 - chance): 0 at chance, 1 when every reasoning"
        " identifies its prompt",
    ),
    "retrieval_accuracy": Term(
        label="retrieval accuracy",
        group=_MI,
        share=True,
        definition="share of responses whose own prompt makes their reasoning likeliest",
    ),
    "retrieval_chance_level": Term(
        label="retrieval at chance", group=_MI, share=True, definition="1 / number of prompts"
    ),
    "retrieval_above_chance": Term(
        label="retrieval above chance", group=_MI, share=True, definition="accuracy - chance"
    ),
    "retrieval_p_value": Term(
        label="p-value of retrieval",
        group=_MI,
        definition="chance of at least this accuracy if groups were dealt to prompts at random",
    ),
    "mi_seq_estimate": Term(
        label="MI per response",
        group=_MI,
        definition="mean of log p(Z|X) - log mean_x p(Z|x); at most log P, P prompts of one turn",
    ),
    "mi_upper_bound": Term(
        label="cap of MI per response", group=_MI, definition="log of the number of prompts"
    ),
    "mi_estimate": Term(
        label="MI per token",
        group=_MI,
        definition="the same, divided by length (Eq. 1); rises when texts shorten",
    ),
    "mi_p_value": Term(
        label="p-value of MI",
        group=_MI,
        definition="chance of at least this MI if groups were dealt to prompts at random",
    ),
    "mi_zscore": Term(
        label="MI z-score",
        group=_MI,
        definition="MI per token in units of the marginal's standard deviation",
    ),
    "mi_zscore_seq": Term(
        label="MI z-score per response",
        group=_MI,
        definition="MI per response in units of the marginal's standard deviation",
    ),
    "marginal_std": Term(
        label="marginal's deviation", group=_MI, definition="denominator of the z-score"
    ),
    "marginal_std_seq": Term(
        label="marginal's deviation per response", group=_MI, definition="the same, per response"
    ),
    "conditional_entropy_est": Term(
        label="H(Z|X)",
        group=_ENTROPY,
        definition="mean of -log p(Z|X) / length under the scorer",
    ),
    "conditional_entropy_seq_est": Term(
        label="H(Z|X) per response", group=_ENTROPY, definition="mean of -log p(Z|X)"
    ),
    "reasoning_entropy_est": Term(
        label="H(Z)", group=_ENTROPY, definition="mean of -log mean_x p(Z|x) / length"
    ),
    "reasoning_entropy_seq_est": Term(
        label="H(Z) per response", group=_ENTROPY, definition="mean of -log mean_x p(Z|x)"
    ),
    "top1_share": Term(
        label="commonest text",
        group=_ENTROPY,
        share=True,
        low_above=True,
        definition="share of the commonest reasoning text among all scored",
    ),
    "distinct_ratio": Term(
        label="distinct texts",
        group=_ENTROPY,
        share=True,
        definition="number of different response texts / number of responses",
    ),
    "distinct_ratio_in_groups": Term(
        label="distinct texts of a group",
        group=_ENTROPY,
        share=True,
        definition="the same within a group, white space normalised, mean over groups",
    ),
    "answer_top1_share": Term(
        label="commonest answer",
        group=_ENTROPY,
        share=True,
        low_above=True,
        definition="share of the commonest answer among all that could be told from the rest",
    ),
    "distinct_answer_ratio": Term(
        label="distinct answers",
        group=_MI,
        share=True,
        definition="different answers among the commonest of each prompt / number of prompts",
    ),
    "valid_thinking_rate": Term(
        label="valid reasoning",
        group=_FORM,
        share=True,
        definition="responses with a closed, non-empty reasoning span",
    ),
    "truncated_share": Term(
        label="truncated",
        group=_FORM,
        share=True,
        definition="responses that end at the length cap",
    ),
    "empty_answer_rate": Term(
        label="empty answers",
        group=_FORM,
        share=True,
        definition="answers without any text among all that could be told from the rest",
    ),
    "reasoning_length": Term(
        label="reasoning length", group=_FORM, definition="mean tokens of scored reasoning"
    ),
    "response_length": Term(
        label="response length", group=_FORM, definition="mean length of whole responses"
    ),
    "repetition": Term(
        label="repetition",
        group=_FORM,
        share=True,
        definition="mean share of four-token sequences that occurred before in the same reasoning",
    ),
    "rollout_entropy_est": Term(
        label="H(Z|X) by the dump",
        group=_ENTROPY,
        definition="minus the mean of the dump's own log-probs of the reasoning tokens: entropy"
        " under the policy that sampled, whatever the scorer",
    ),
    "rollout_entropy_seq_est": Term(
        label="H(Z|X) per response by the dump",
        group=_ENTROPY,
        definition="the same summed over the reasoning of a response",
    ),
    "rollout_logprob_gap": Term(
        label="gap to rollout log-probs",
        group=_FORM,
        definition="mean over tokens of the scorer's log-probability minus the dump's own, without"
        " the 1 % of the largest differences",
    ),
    "rollout_logprob_gap_mean": Term(
        label="gap to rollout log-probs, all tokens",
        group=_FORM,
        definition="the same mean over all tokens: a few can make it",
    ),
    "rollout_logprob_spread": Term(
        label="size of the gap",
        group=_FORM,
        definition="mean |difference|, without the 1 % of the largest",
    ),
    "rollout_logprob_spread_median": Term(
        label="median size of the gap", group=_FORM, definition="median of |difference| over tokens"
    ),
    "rollout_logprob_spread_p99": Term(
        label="99th percentile of the gap",
        group=_FORM,
        definition="99th percentile of |difference| over tokens",
    ),
    "rollout_logprob_extremes": Term(
        label="tokens with an extreme gap",
        group=_FORM,
        share=True,
        definition="share of tokens that differ by more than 1 nat",
    ),
    "rollout_logprob_top_share": Term(
        label="carried by few tokens",
        group=_FORM,
        share=True,
        definition="what the 0.1 % of tokens with the largest |difference| have of the sum",
    ),
    "success_rate": Term(
        label="success", group=_REWARD, share=True, definition="share of successful responses"
    ),
    "reward_mean": Term(label="mean reward", group=_REWARD),
    "in_group_reward_std": Term(
        label="reward std in groups",
        group=_REWARD,
        definition="mean over groups of the standard deviation of their rewards",
    ),
    "in_group_reward_var": Term(
        label="reward variance in groups",
        group=_REWARD,
        definition="mean over groups of the variance of their rewards (RV)",
    ),
    "within_prompt_var": Term(
        label="reward variance within prompts",
        group=_REWARD,
        definition="the same with the groups of one prompt taken together",
    ),
    "flat_share": Term(
        label="flat groups",
        group=_REWARD,
        share=True,
        definition="share of groups whose rewards do not vary: they give no task gradient",
    ),
    "kept_share_rho_0.9": Term(
        label="kept by the filter",
        group=_REWARD,
        share=True,
        definition="share of groups that hold 90 % of the summed reward variance (RAGEN-2, Sec. 4)",
    ),
    "policy_entropy": Term(
        label="H(Z|X) of the policy",
        group=_ENTROPY,
        definition="per token, by the policy's own checkpoint, else by the dump's own log-probs",
    ),
    "reward_length_correlation": Term(
        label="reward against length",
        group=_REWARD,
        definition="rank correlation of reward and response length within groups, mean over groups"
        " where both vary; in characters where tokens are unknown",
    ),
}

_AT_K = re.compile(r"retrieval_accuracy@(\d{1,6})")
_ROWS = re.compile(r"(.+)_rows")
_LOG = "history/"
_EMA = re.compile(r"(.+?)_ema(_seq)?")


def term(name: str) -> Term:
    """The term of a metric name, built from its parts for `@k` and `_ema` forms.

    >>> term("retrieval_accuracy@4").label, term("mi_zscore_ema_seq").label, term("odd_one").label
    ('retrieval in best 4', 'MI z-score per response, EMA', 'odd_one')
    """
    if name in TERMS:
        return TERMS[name]
    if name.startswith(_LOG):
        return Term(label=f"{name.removeprefix(_LOG)} (log)", group=_OTHER, definition="as logged")
    if at_k := _AT_K.fullmatch(name):
        return Term(
            label=f"retrieval in best {at_k[1]}",
            group=_MI,
            share=True,
            definition=f"share of responses with their own prompt among the {at_k[1]} best",
        )
    if (rows := _ROWS.fullmatch(name)) and rows[1] in TERMS:
        base = TERMS[rows[1]]
        return replace(base, label=f"{base.label}, by row", definition="each response once")
    if ema := _EMA.fullmatch(name):
        stem = ema[1] + (ema[2] or "")
        if stem in TERMS:
            definition = "smoothed over a series of steps; one step equals the plain form"
            return replace(TERMS[stem], label=f"{TERMS[stem].label}, EMA", definition=definition)
    return Term(label=name, group=_OTHER)


def value_text(name: str, metric: Metric, *, against: tuple[float | None, ...] = ()) -> str:
    """A metric's value with its unit, or "n/a" with the reason."""
    return amount(
        metric.value,
        unit=metric.unit,
        share=term(name).share,
        against=against,
        reason=metric.reason,
    )


def interval_text(name: str, metric: Metric, *, against: tuple[float | None, ...] = ()) -> str:
    """A metric's 95 % interval, "" where it has none."""
    return interval(metric.low, metric.high, share=term(name).share, against=against)
