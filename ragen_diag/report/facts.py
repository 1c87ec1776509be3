"""The facts of a result as short texts: what terminal, Markdown and HTML all say.

Comes in: a `Result`. Goes out: texts without any markup, still to be escaped by each renderer.
Knows no layout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from ragen_diag.judging.findings import SEVERITIES, Finding
from ragen_diag.judging.regimes import NOT_JUDGED, Axis, Check
from ragen_diag.metrics.metric import Metric
from ragen_diag.report.glossary import GROUPS, interval_text, term, value_text
from ragen_diag.report.numbers import amount, interval, number, plural
from ragen_diag.report.safetext import clip
from ragen_diag.report.words import (
    AXES,
    STATES,
    Words,
    advice,
    reason_words,
    regime_words,
)
from ragen_diag.result import Result

_LONGEST_NAME = 60
INNER_FOLDERS = frozenset(
    {"huggingface", "actor", "policy", "weight", "weights", "model", "checkpoint"}
)
_NO_BASELINE = frozenset({"scorer_mismatch", "step_mismatch", "prompt_subset"})
"""Findings with which a result is no yardstick for others."""

COMMON_FOLDERS = frozenset({"rollouts", "rollout", "rollout_data", "dumps", "dump", "completions"})
"""Names of dump folders that every run has."""
QUADRANTS = (
    "diverse_reasoning",
    "template_collapse",
    "compressed_reasoning",
    "low_entropy_collapse",
)


@dataclass(frozen=True, kw_only=True)
class CheckFact:
    """One metric against one threshold, in words."""

    label: str
    value: str
    interval: str
    cut: str
    rule: str
    state: str
    source: str
    check: Check


@dataclass(frozen=True, kw_only=True)
class AxisFact:
    """One axis of the plane: its state, the deciding check and the others."""

    name: str
    title: str
    question: str
    state: str
    deciding: CheckFact
    others: tuple[CheckFact, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class MetricFact:
    """One row of the table of numbers; the note of an undefined metric is the reason."""

    name: str
    label: str
    value: str
    interval: str
    n: str
    note: str


def file_name(path: str) -> str:
    """The last part of a path that tells runs apart, clipped: names can be long, and are data.

    >>> file_name("runs/a/step_80.parquet"), file_name("runs/a/rollouts")
    ('step_80.parquet', 'a/rollouts')
    """
    parts = PurePath(path).parts
    told = parts[-2:] if parts and parts[-1].lower() in COMMON_FOLDERS else parts[-1:]
    return clip("/".join(told) or path, _LONGEST_NAME)


def named_part(checkpoint: str) -> str:
    """The part of a checkpoint's path that tells it from others, without a trainer's sub-folders.

    >>> named_part("run/global_step_120/actor/huggingface"), named_part("org/model")
    ('run/global_step_120', 'org/model')
    """
    path = PurePath(checkpoint)
    while path.name in INNER_FOLDERS and len(path.parts) > 2:
        path = path.parent
    return str(path)


def subject(result: Result) -> str:
    """What was analysed, in a line."""
    dump, counts = result.inputs.dump, result.counts
    files = file_name(dump.paths[0]) if dump.paths else "no file"
    if len(dump.paths) > 1:
        files += f" and {plural(len(dump.paths) - 1, 'more file')}"
    step = "" if dump.step is None else f"step {dump.step} of "
    size = f"{plural(counts.rows, 'response')} in {plural(counts.groups, 'group')}"
    return f"{step}{files} ({clip(dump.dialect, 30)}): {size}{_scope(result)}"


def _scope(result: Result) -> str:
    """Which turns were taken, "" for the first ones, as they are the rule."""
    name = str(result.inputs.settings.get("scope", "first_turn"))
    words = {"first_turn": "", "trajectory_uniform": ", one turn drawn from each trajectory"}
    return words.get(name, f", {clip(name.replace('_', ' '), 30)} of each trajectory only")


def scorer(result: Result) -> str:
    """What scored it, in a line."""
    checkpoint = result.inputs.checkpoint
    if checkpoint is None:
        return "no checkpoint: nothing was scored"
    counts = result.counts
    scored = f"{plural(counts.scored_rows, 'response')} under {plural(counts.prompts, 'prompt')}"
    name = file_name(named_part(checkpoint.path))
    step = result.inputs.dump.step
    if checkpoint.step is not None and step is not None and checkpoint.step != step:
        name += f", which is step {checkpoint.step} and not {step}"
    return f"scored {scored} with {name}, {checkpoint.dtype} on {checkpoint.device}"


def to_do(words: Words, result: Result) -> tuple[str, ...]:
    """The steps that a wording advises, without those that this result speaks against."""
    without = set()
    if result.reward.applicability == "likely_hurts":
        without.add("filter")
    if _NO_BASELINE & {finding.code for finding in result.findings}:
        without.add("baseline")
    return advice(words, result.inputs.dump.dialect, without=without)


def candidates(result: Result) -> str:
    """Which quadrants remain, as a sentence; "" when the label says it all, or none is excluded."""
    regime = result.regime
    names = [
        clip(regime_words(name).title.lower(), _LONGEST_NAME)
        for name in regime.candidates
        if name != regime.label
    ]
    if not names or len(names) == len(QUADRANTS):
        return ""
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    if regime.label == "undetermined":
        return f"Could be {joined}."
    return f"At face value: {joined}."


def axes(result: Result) -> tuple[AxisFact, ...]:
    """The axes in their order, the unknown ones last under their own name."""
    known = [name for name in AXES if name in result.regime.axes]
    rest = [name for name in result.regime.axes if name not in AXES]
    return tuple(_axis(name, result.regime.axes[name], result.metrics) for name in known + rest)


def _axis(name: str, axis: Axis, metrics: Mapping[str, Metric]) -> AxisFact:
    title, question = AXES.get(name, (name, name))
    others = tuple(
        check_fact(check, metrics) for check in axis.checks if check.metric != axis.metric
    )
    return AxisFact(
        name=name,
        title=title,
        question=question,
        state=STATES.get(axis.state, axis.state),
        deciding=check_fact(axis, metrics),
        others=others,
        reason=axis.reason or "" if axis.value is not None else "",
    )


def check_fact(check: Check, metrics: Mapping[str, Metric]) -> CheckFact:
    """A check in words, with digits enough to see on which side of the threshold it lies."""
    known = term(check.metric)
    metric = metrics.get(check.metric)
    unit = metric.unit if metric is not None else ""
    threshold = check.threshold
    cut, rule = "", "no threshold"
    if threshold is not None:
        digits = number(threshold, against=(check.value, check.low, check.high), share=known.share)
        cut = f"{float(digits.replace(',', '')):.10g}" + (" %" if known.share else "")
        rule = f"low if {'>=' if known.low_above else '<'} {cut}"
    return CheckFact(
        label=known.label,
        value=amount(
            check.value, unit=unit, share=known.share, against=(threshold,), reason=check.reason
        ),
        interval=interval(check.low, check.high, share=known.share, against=(threshold,)),
        cut=cut,
        rule=rule,
        state=STATES.get(check.state, check.state),
        source=check.source,
        check=check,
    )


def metric_groups(result: Result) -> list[tuple[str, list[MetricFact]]]:
    """All metrics by group, in the glossary's order of groups and the result's order within."""
    rows: dict[str, list[MetricFact]] = {group: [] for group in GROUPS}
    for name, metric in result.metrics.items():
        if not _repeats(name, metric, result.metrics):
            rows[term(name).group].append(_metric(name, metric))
    return [(group, facts) for group, facts in rows.items() if facts]


def _repeats(name: str, metric: Metric, metrics: Mapping[str, Metric]) -> bool:
    """Whether a `_rows` or `_ema` form says nothing that its plain form has not said."""
    plain = metrics.get(name.removesuffix("_rows").replace("_ema", ""))
    return plain is not None and plain is not metric and plain == metric


def _metric(name: str, metric: Metric) -> MetricFact:
    note = term(name).definition
    if metric.reason and metric.value is None:
        note = metric.reason
    elif metric.reason:
        note = f"{note}; {metric.reason}" if note else metric.reason
    return MetricFact(
        name=name,
        label=term(name).label,
        value="n/a" if metric.value is None else value_text(name, metric),
        interval=interval_text(name, metric),
        n=f"{metric.n:,}" if metric.n else "",
        note=note,
    )


def mutual_information(result: Result) -> str:
    """MI per response beside its cap; "" when it was not measured."""
    metric, cap = result.metrics.get("mi_seq_estimate"), result.metrics.get("mi_upper_bound")
    if metric is None:
        return ""
    known = cap.value if cap is not None else None
    text = value_text("mi_seq_estimate", metric, against=(known,))
    span = interval_text("mi_seq_estimate", metric, against=(known,))
    limit = "" if known is None or metric.value is None else f", cap {number(known)}"
    return f"{text} {span}{limit}".replace("  ", " ")


def retrieval(result: Result) -> str:
    """How often a reasoning identifies its prompt, beside chance; "" when not measured."""
    metric = result.metrics.get("retrieval_accuracy")
    chance = result.metrics.get("retrieval_chance_level")
    if metric is None:
        return ""
    known = chance.value if chance is not None else None
    text = value_text("retrieval_accuracy", metric, against=(known,))
    if metric.value is not None and known is not None:
        text += f", chance {number(known, share=True, against=(metric.value,))} %"
    return text


def valid_reasoning(result: Result) -> str:
    """How many responses hold reasoning; "" when not measured."""
    metric = result.metrics.get("valid_thinking_rate")
    if metric is None:
        return ""
    span = "" if metric.low == metric.high else interval_text("valid_thinking_rate", metric)
    of = f"of {plural(metric.n, 'response')}" if metric.n else ""
    return " ".join(part for part in (value_text("valid_thinking_rate", metric), span, of) if part)


def left_out(result: Result) -> list[tuple[str, int]]:
    """Responses left out, by reason, most first."""
    counts = result.counts.excluded.items()
    return [(reason_words(reason), n) for reason, n in sorted(counts, key=lambda pair: -pair[1])]


def doubts(result: Result) -> tuple[str, str]:
    """Heading of the findings, and a sentence on whether any voids the verdict ("" if one does)."""
    if result.regime.label == NOT_JUDGED:
        return "Findings", ""
    if any(finding.severity == "void" for finding in result.findings):
        return "What could void it", ""
    keep = "; keep in mind:" if result.findings else "."
    return "What could void it", f"Nothing was found that voids the verdict{keep}"


def by_severity(result: Result) -> list[Finding]:
    """The findings: what voids the verdict, then warnings, then notes, each in their own order."""
    return sorted(result.findings, key=lambda finding: SEVERITIES.index(finding.severity))
