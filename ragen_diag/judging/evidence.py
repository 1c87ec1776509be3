"""What is known about one batch besides its metrics: the input of every finding.

Filled by the pipeline from what the stages returned. Knows no thresholds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ragen_diag.judging.thresholds import DUMPED_ENTROPY_CHECKS, ENTROPY_CHECKS
from ragen_diag.metrics.agreement import RolloutGap
from ragen_diag.metrics.answers import AnswerSummary
from ragen_diag.metrics.components import Component
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.phantom import PhantomVariance
from ragen_diag.metrics.reward import RewardSignal
from ragen_diag.metrics.trials import FormatTrial, TemperatureTrial


def dumped_or_scored(metrics: Mapping[str, Metric], *, yardstick: bool) -> tuple[str, ...]:
    """The checks of the entropy axis: by the dump's own log-probs where the scorer is a yardstick
    and there are any."""
    dumped = metrics.get(DUMPED_ENTROPY_CHECKS[0])
    there = dumped is not None and dumped.value is not None
    return DUMPED_ENTROPY_CHECKS if yardstick and there else ENTROPY_CHECKS


@dataclass(frozen=True, kw_only=True)
class ScoringEvidence:
    """How the cross-scores came about; absent when no checkpoint scored the batch.

    `prompts` counts the columns that own a scored row. `rows_within_noise` is the share of rows
    whose two best columns differ by less than `noise_per_response`; None with one column.
    `largest_response` names the response of the gap's largest token. `prompt_forms` counts rows by
    `groups.Groups.form_R`; `quantised` and `experts` are the checkpoint's, `logprobs_lacking` and
    `double_bos` those of `Groups`,
    `against_template` that of `encoding`; the trials are None where there was nothing to try.
    """

    scored_rows: int
    prompts: int
    used_vocabulary: int
    noise_per_token: float
    noise_per_response: float
    rows_within_noise: float | None = None
    gap: RolloutGap | None = None
    largest_response: str = ""
    retokenised: int = 0
    prompt_forms: Mapping[str, int] = field(default_factory=dict)
    logprobs_lacking: Mapping[str, int] = field(default_factory=dict)
    double_bos: int = 0
    quantised: bool = False
    experts: int = 0
    against_template: Mapping[str, int] = field(default_factory=dict)
    formats: FormatTrial | None = None
    temperatures: TemperatureTrial | None = None
    checkpoint_step: int | None = None
    prompts_before_limit: int | None = None
    compat: str = "none"
    temperature: float = 1.0
    yardstick: bool = False
    """The scorer is known not to be the policy that sampled."""


@dataclass(frozen=True, kw_only=True)
class BatchEvidence:
    """One step's metrics, reward side and counts.

    `baseline` holds the metrics of an earlier result. `variance_kept` is that of
    `metrics.components`; `replacement_share`, `script_mix`, `mixed_scripts` and `disorder` are
    those of `metrics.garble`; `truncation_how` says how rows at the cap were found,
    `share_at_longest` how many responses have the largest length. `reading` counts what was
    repaired or left out when the dump was read. `policy_versions` counts the rows by the versions
    of the policy that wrote them, such as "8" or "8..10", `spanning` those of several.
    """

    metrics: Mapping[str, Metric]
    reward: RewardSignal
    rows: int
    scoring: ScoringEvidence | None = None
    baseline: Mapping[str, Metric] | None = None
    dump_step: int | None = None
    scope: str = "first_turn"
    excluded: Mapping[str, int] = field(default_factory=dict)
    reading: Mapping[str, int] = field(default_factory=dict)
    missing_rewards: int = 0
    group_sources: Mapping[str, int] = field(default_factory=dict)
    has_tags: bool = True
    multiple_spans: int = 0
    replacement_share: float = 0.0
    script_mix: float = 0.0
    mixed_scripts: float = 0.0
    disorder: float | None = None
    truncation_how: str = ""
    share_at_longest: float | None = None
    answers: AnswerSummary | None = None
    phantom: PhantomVariance | None = None
    policy_versions: Mapping[str, int] = field(default_factory=dict)
    spanning: int = 0
    components: Mapping[str, Component] = field(default_factory=dict)
    variance_kept: float | None = None

    @property
    def entropy(self) -> str:
        """The metric of the policy's entropy per token: by the scorer, unless that is known not to
        be the policy and the dump has log-probs of its own."""
        by_dump = self.scoring is not None and self.scoring.yardstick
        return dumped_or_scored(self.metrics, yardstick=by_dump)[0]

    def value(self, metric: str) -> float | None:
        """The metric's value; None when it is undefined or was not measured."""
        found = self.metrics.get(metric)
        return None if found is None else found.value
