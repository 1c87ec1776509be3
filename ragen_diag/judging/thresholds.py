"""Every cut that a verdict or a finding rests on, with its source. Data, and how one is chosen.

The paper gives no numeric thresholds: cuts are relative to a baseline where there is one, and
provisional absolutes otherwise. Comes in: a metric's name, log P, a baseline. Goes out: the
`Threshold` to hold it against. Knows nothing of verdicts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ragen_diag.metrics.metric import Metric

Side = Literal["below", "at_or_above", "across"]


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A cut on one metric; `source` says where the number comes from.

    Values below the cut are low; for `low_side` "at_or_above" those at or above it are.
    """

    metric: str
    value: float
    unit: str
    source: str
    low_side: Literal["below", "at_or_above"] = "below"


def side(low: float, high: float, cut: float) -> Side:
    """On which side of a cut a whole interval lies; the one comparison of all verdicts.

    A value equal to the cut is at or above it. Exact: nothing is rounded.

    >>> side(0.1, 0.3, 0.4), side(0.4, 0.4, 0.4), side(0.3, 0.5, 0.4)
    ('below', 'at_or_above', 'across')
    """
    if high < cut:
        return "below"
    return "at_or_above" if low >= cut else "across"


# --- the two axes ---

MI_CHECKS = ("retrieval_skill", "mi_seq_estimate")
ENTROPY_CHECKS = ("conditional_entropy_est", "conditional_entropy_seq_est", "top1_share")
DUMPED_ENTROPY_CHECKS = ("rollout_entropy_est", "rollout_entropy_seq_est", "top1_share")
"""Those of the policy itself where the scorer is another model: a stale scorer is surprised by what
the policy is not."""

_PER_TOKEN_SOURCE = "provisional; ours, from small runs (healthy 0.4-0.5, collapsed 0.03-0.15)"
_PER_RESPONSE_SOURCE = "provisional; ours: e^1 = 2.7 effective texts per prompt"

ABSOLUTE: Mapping[str, Threshold] = {
    cut.metric: cut
    for cut in (
        Threshold(
            metric="retrieval_skill",
            value=0.4,
            unit="",
            source="provisional; read off Fig. 5 of RAGEN-2 (healthy 0.54-0.69, collapsed < 0.2)",
        ),
        *(
            Threshold(metric=name, value=0.2, unit="nats/token", source=_PER_TOKEN_SOURCE)
            for name in ("conditional_entropy_est", "rollout_entropy_est")
        ),
        *(
            Threshold(metric=name, value=1.0, unit="nats/response", source=_PER_RESPONSE_SOURCE)
            for name in ("conditional_entropy_seq_est", "rollout_entropy_seq_est")
        ),
        Threshold(
            metric="top1_share",
            value=0.5,
            unit="",
            source="provisional; ours: half of all responses are one text",
            low_side="at_or_above",
        ),
    )
}

CHANCE_P_VALUE = 0.05
"""Above, on `retrieval_p_value`: retrieval is not told from chance."""

MI_SEQ_OF_CAP = 0.25
"""Absolute cut of `mi_seq_estimate` as a share of log P; ours, provisional."""

OF_BASELINE: Mapping[str, float] = {
    "retrieval_skill": 0.5,
    "mi_seq_estimate": 0.5,
    "conditional_entropy_est": 0.4,
    "rollout_entropy_est": 0.4,
}
"""Cut as a fraction of the baseline's value; ours, defaults. The entropy per response has none: it
falls to a third when a fluent template gets shorter, which is not the loss of its variety."""


def threshold(
    metric: str, log_prompts: float, baseline: Mapping[str, Metric] | None = None
) -> Threshold:
    """The cut for one metric of `MI_CHECKS` or `ENTROPY_CHECKS`.

    Relative to the baseline where `OF_BASELINE` has a fraction and the baseline a usable value,
    absolute otherwise. `mi_seq_estimate` is capped by `log_prompts` = log P, so its baseline is
    taken as a share of the baseline's own cap.
    """
    reference = _reference(metric, baseline)
    if reference is not None and baseline is not None:
        fraction = OF_BASELINE[metric]
        source = f"{fraction:g} x the baseline's {reference:.4g}"
        value = fraction * reference
        cap = _reference("mi_upper_bound", baseline)
        if metric == "mi_seq_estimate" and cap:
            value *= log_prompts / cap
            source += "" if cap == log_prompts else ", scaled to this log P"
        return Threshold(metric=metric, value=value, unit=baseline[metric].unit, source=source)
    if metric == "mi_seq_estimate":
        return Threshold(
            metric=metric,
            value=MI_SEQ_OF_CAP * log_prompts,
            unit="nats/response",
            source=f"provisional; ours: {MI_SEQ_OF_CAP:g} x log P",
        )
    return ABSOLUTE[metric]


def _reference(metric: str, baseline: Mapping[str, Metric] | None) -> float | None:
    """The baseline's value, unless it is not positive or not clearly above zero itself."""
    if baseline is None or (metric not in OF_BASELINE and metric != "mi_upper_bound"):
        return None
    found = baseline.get(metric)
    if found is None or found.value is None or found.value <= 0:
        return None
    return None if found.low is not None and found.low <= 0 else found.value


# --- what voids a verdict, in the order of the method ---

MIN_PROMPTS = 4
MIN_SCORED_ROWS = 16
"""Fewer of either: insufficient_data (method)."""
VALID_THINKING = 0.8
"""Below: format_collapse (method): what the survivors tell is not what the policy does."""
VALID_THINKING_WITHHELD = 0.5
"""Below: the survivors are a minority, and model metrics are withheld altogether; ours."""
TRUNCATED_SHARE = 0.5
"""At or above: truncated (method): metrics are measured on prefixes."""
REPETITION = 0.5
"""At or above, on the mean share of repeated 4-grams: degenerate_repetition; ours. Reports of
looping runs have 0.9 and more, fluent text under 0.1."""
ENTROPY_OF_CAP = 0.8
MIN_VOCABULARY = 32
"""Above, on entropy per token over log(used vocabulary): garbled_text (method). Only from 32 tokens
in use on (ours): a choice between four words is no word salad."""
ENTROPY_OVER_BASELINE = 3.0
ENTROPY_EXPLODED = 1.0
"""Above 3 x the baseline and above 1 nat/token: garbled_text; ours. The second keeps a run that
recovers from a low-entropy baseline out of it."""
REPLACEMENT_SHARE = 0.01
"""At or above, on the share of U+FFFD characters: garbled_text; ours."""
MIXED_SCRIPTS = 0.25
"""At or above, on the share of texts without a script that has half of the letters: garbled_text;
ours."""
DISORDER = 0.9
"""At or above, on compressed size over that of shuffled characters: garbled_text; ours. Language
has under 0.75 in Latin, Cyrillic, Greek, Chinese, Japanese and Korean script, random characters
have 0.97 and more."""
MISMATCH_VOID = 0.2
MISMATCH_BIAS = 0.02
MISMATCH_SPREAD = 0.05
"""Above, on the gap to the dump's log-probs in nats/token: scorer_mismatch; ours. Its mean beyond
0.02 or the mean of its size beyond 0.05 is a warning, either beyond 0.2 voids. Engines that compute
in bfloat16 are 0.01 to 0.03 off, to both sides."""
TEMPERATURE_FITS = 0.5
"""At or below, on the gap's size at the best temperature over that at the one used: it is said at
which temperature the dump's log-probs seem to be; ours."""
NOISE_ROWS = 0.1
NOISE_FLOOR = 0.01
"""More than this share of rows with a top-two margin under a noise above this many nats/response:
numeric_noise as a warning; ours."""

# --- what a reader should know beside it ---

SATURATED = 0.95
"""At or above, on `mi_seq_estimate` over log P: mi_saturated; ours."""
STD_FLOOR = 0.02
"""Below, on `marginal_std` in nats/token: zscore_unreliable (method)."""
FLAT_SHARE = 0.5
"""At or above, on the share of groups without signal: flat_groups is a warning, unless chance
explains it; ours."""
CHANCE_ERRORS = 2.0
"""Within this many standard errors a share of flat groups is what chance gives; ours."""
SMALL_GROUPS = 4
"""At or below, on the median size of groups of several: small_groups; ours."""
MOSTLY_CHANCE = 0.5
"""At or above, on the share of flat groups by chance over the observed one: small_groups; ours."""
DISTINCT_IN_GROUPS = 0.5
"""At or below, on the share of different texts in a group: few_distinct_texts; ours. The least
that groups of two can have."""
PHANTOM_VARIANCE = 0.25
"""At or above, on the share of the reward variance within prompts that is in groups of constant
success: phantom_variance; ours."""
LENGTH_CORRELATION = 0.5
"""At or above, on the rank correlation of reward and length within groups, where variance is
phantom: reward_follows_length; ours."""
EMPTY_REWARDED = 0.5
"""At or above, on the share of empty answers that earn the batch's best: empty_answers_rewarded;
ours."""
REWARD_SATURATED = 0.95
SHARING_PROMPTS = 0.9
"""At or above, on the share of responses that earn the batch's best and of prompts with one
commonest answer: answers_independent_of_prompt; ours."""
FORMAT_GAIN = 0.05
FORMAT_ERRORS = 2.0
"""At or above both, on what another format of the prompts gains in nats/token, the second in
standard errors of the gain: prompt_format is a warning; ours."""
FILTERED_TOKENS = 0.01
"""At or above, on the share of tokens with a dumped log-prob of exactly 0 where ours is not near 0:
filtered_logprobs; ours."""
TOP_CARRIES = 0.5
"""At or above, on what the 0.1 % of tokens with the largest gaps have of all gaps, if any is
extreme: extreme_logprob_gaps; ours."""
EXCLUDED_SHARE = 0.2
"""At or above, on the share of rows not scored: rows_excluded is a warning; ours."""
COMPONENT_SATURATED = 0.95
"""At or above, on the share of rows at a component's maximum; ours."""
COMPONENTS_CANCEL = 0.25
"""Below, on the variance that is left when components are added; ours."""
