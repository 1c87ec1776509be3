"""Which of the four reasoning regimes a batch is in (RAGEN-2, Fig. 1), or that it cannot be said.

Comes in: metrics with intervals, findings, perhaps a baseline's metrics. Goes out: a `Regime` that
repeats every value beside the threshold it was held against. Knows no wording and no files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from ragen_diag.judging.evidence import dumped_or_scored
from ragen_diag.judging.findings import Finding
from ragen_diag.judging.thresholds import (
    CHANCE_P_VALUE,
    MI_CHECKS,
    Threshold,
    side,
    threshold,
)
from ragen_diag.metrics.metric import Metric

State = Literal["low", "high", "undetermined", "not_available"]

QUADRANTS: Mapping[tuple[State, State], str] = {
    ("high", "high"): "diverse_reasoning",
    ("low", "high"): "template_collapse",
    ("high", "low"): "compressed_reasoning",
    ("low", "low"): "low_entropy_collapse",
}
"""(state of MI, state of conditional entropy) -> regime."""

UNDETERMINED = "undetermined"
NOT_JUDGED = "not_judged"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One metric held against one threshold, both repeated so that a result explains itself."""

    metric: str
    value: float | None
    low: float | None
    high: float | None
    threshold: float | None
    source: str
    state: State
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Axis(Check):
    """One axis of the plane: the deciding check in the flat fields, and all that were looked at."""

    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Regime:
    """The verdict. `candidates` names the quadrants that remain possible when `label` is none."""

    label: str
    candidates: tuple[str, ...]
    axes: Mapping[str, Axis]


def judge(
    metrics: Mapping[str, Metric],
    log_prompts: float,
    findings: Iterable[Finding] = (),
    *,
    baseline: Mapping[str, Metric] | None = None,
    yardstick: bool = False,
) -> Regime:
    """Name the regime of one batch.

    `metrics` by the names of the result, `log_prompts` = log P in nats. The label is

    * "not_judged" when nothing was scored with a model (`retrieval_skill` is not among them);
    * the code of the first "void" finding, which come in the order in which they are ruled out;
    * a quadrant when both axes are low or high;
    * "undetermined" otherwise.

    With `yardstick` the scorer is known not to be the policy, whose entropy is then taken from the
    dump's own log-probs where there are any.

    In the second and last case `candidates` are the quadrants that the axes leave open.
    """
    axes = {
        "mi": _mi_axis(
            [check(name, metrics, log_prompts, baseline) for name in MI_CHECKS],
            above_chance=_above_chance(metrics),
        ),
        "entropy": _entropy_axis(
            [
                check(name, metrics, log_prompts, baseline)
                for name in dumped_or_scored(metrics, yardstick=yardstick)
            ]
        ),
    }
    voids = [finding.code for finding in findings if finding.severity == "void"]
    if "format_collapse" in voids:
        axes["mi"] = replace(
            axes["mi"],
            state="not_available",
            reason="too few responses have a valid reasoning span to speak for the policy",
        )
    if "retrieval_skill" not in metrics:
        return Regime(label=NOT_JUDGED, candidates=(), axes=axes)
    open_quadrants = _open(axes["mi"].state, axes["entropy"].state)
    if voids:
        return Regime(label=voids[0], candidates=open_quadrants, axes=axes)
    if len(open_quadrants) == 1:
        return Regime(label=open_quadrants[0], candidates=(), axes=axes)
    return Regime(label=UNDETERMINED, candidates=open_quadrants, axes=axes)


def check(
    name: str,
    metrics: Mapping[str, Metric],
    log_prompts: float,
    baseline: Mapping[str, Metric] | None = None,
) -> Check:
    """Hold one metric against its threshold.

    Low or high when the whole interval is on one side, "undetermined" when it spans the cut. A
    metric without an interval is compared by its value; one without a value is "not_available".
    To be no worse than a baseline earns a "high" only if the baseline is not low itself by the
    absolute threshold: it may be a collapsed step.
    """
    cut = threshold(name, log_prompts, baseline)
    metric = metrics.get(name) or Metric.undefined("not measured")
    state, reason = _state(metric, cut), metric.reason
    absolute = threshold(name, log_prompts)
    if state == "high" and cut.value < absolute.value and _state(metric, absolute) != "high":
        reference = (baseline or {}).get(name)
        if reference is not None and _state(reference, absolute) != "high":
            state = "undetermined"
            reason = f"no worse than a baseline that is under {absolute.value:.3g} itself"
    return Check(
        metric=name,
        value=metric.value,
        low=metric.low,
        high=metric.high,
        threshold=cut.value,
        source=cut.source,
        state=state,
        reason=reason,
    )


def _state(metric: Metric, cut: Threshold) -> State:
    if metric.value is None:
        return "not_available"
    low = metric.value if metric.low is None else metric.low
    high = metric.value if metric.high is None else metric.high
    found = side(low, high, cut.value)
    if found == "across":
        return "undetermined"
    return "low" if found == cut.low_side else "high"


def _mi_axis(checks: Sequence[Check], *, above_chance: bool) -> Axis:
    """Retrieval skill decides; `mi_seq_estimate` may contradict it, or decide for low where skill
    is unclear and at chance. Never MI per token: that rises while texts get shorter."""
    skill, mi_seq = checks
    axis = _axis(skill, checks)
    if skill.state == "undetermined" and mi_seq.state == "low" and not above_chance:
        # Few prompts and one text: all credit falls to one prompt, and its bootstrap spans all.
        reason = "retrieval alone is unclear, but no better than prompts dealt at random"
        return replace(_axis(mi_seq, checks), reason=reason)
    if {skill.state, mi_seq.state} == {"low", "high"}:
        reason = f"{skill.metric} is {skill.state} while {mi_seq.metric} is {mi_seq.state}"
        return replace(axis, state="undetermined", reason=reason)
    return axis


def _above_chance(metrics: Mapping[str, Metric]) -> bool:
    """Whether retrieval beats prompts dealt at random; True where that was not tested."""
    p_value = metrics.get("retrieval_p_value")
    return p_value is None or p_value.value is None or p_value.value <= CHANCE_P_VALUE


def _entropy_axis(checks: Sequence[Check]) -> Axis:
    """Low if any check is low, high if all are, since a constant short text has a high entropy
    per token. The entropy per token must be there; the other checks may be missing."""
    per_token = checks[0]
    if per_token.state == "not_available":
        return _axis(per_token, checks)
    for state in ("low", "undetermined"):
        for found in checks:
            if found.state == state:
                return _axis(found, checks)
    return _axis(per_token, checks)


def _axis(deciding: Check, checks: Sequence[Check]) -> Axis:
    return Axis(**asdict(deciding), checks=tuple(checks))


def _open(mi: State, entropy: State) -> tuple[str, ...]:
    return tuple(
        name
        for (mi_state, entropy_state), name in QUADRANTS.items()
        if mi in (mi_state, "undetermined", "not_available")
        and entropy in (entropy_state, "undetermined", "not_available")
    )
