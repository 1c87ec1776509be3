"""What the signatures look at: onsets by movement, and how the run begins and ends.

Comes in: the timeline and the onsets found on it. Goes out: short questions with an answer. Knows
no signature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ragen_diag.judging.findings import Severity
from ragen_diag.postmortem.model import OnsetRecord
from ragen_diag.timeline import Point, Timeline

END = 3
"""Steps at the end of a run that are looked at for how it ends; ours."""
PERSISTENT = 2
"""Steps in a row that it takes for a state: one low step is no collapse (method)."""


@dataclass(frozen=True)
class Case:
    """One run, as evidence. `onsets` by metric and direction."""

    timeline: Timeline
    onsets: Mapping[tuple[str, int], OnsetRecord]

    def onset(self, metric: str, direction: int) -> OnsetRecord | None:
        """The onset of this movement, or None where it did not happen."""
        found = self.onsets.get((metric, direction))
        return found if found is not None and found.happened else None

    def fell(self, metric: str) -> OnsetRecord | None:
        """The onset of a fall."""
        return self.onset(metric, -1)

    def rose(self, metric: str) -> OnsetRecord | None:
        """The onset of a rise."""
        return self.onset(metric, 1)

    @cached_property
    def judged(self) -> Sequence[Point]:
        """The steps that a model looked at, though their verdict may be void."""
        return [p for p in self.timeline.points if p.result.regime.label != "not_judged"]

    def ends_as(self, label: str) -> int:
        """How many judged steps at the end of the run have this label, without a break."""
        count = 0
        for point in reversed(self.judged):
            if point.result.regime.label != label:
                return count
            count += 1
        return count

    def starts_as(self, label: str) -> bool:
        """Whether the first judged step has it already."""
        return bool(self.judged) and self.judged[0].result.regime.label == label

    def may_end_as(self, label: str) -> bool:
        """Whether the last judged step leaves it open."""
        return bool(self.judged) and label in self.judged[-1].result.regime.candidates

    def finding_at_end(self, code: str, *severities: Severity, policy: bool = False) -> list[int]:
        """The steps among the last few with a finding of this code, and of one of the severities
        if any are named; with `policy`, among those scored by the policy itself."""
        points = [
            point
            for point in self.timeline.points
            if not policy or (point.scorer is not None and point.scorer.is_policy)
        ]
        return [
            point.step
            for point in points[-END:]
            for found in point.result.findings
            if found.code == code and (not severities or found.severity in severities)
        ]

    def values(self, metric: str) -> list[tuple[int, float]]:
        """Step and value where it is defined."""
        found = self.timeline.metrics.get(metric, ())
        return [
            (step, metric.value)
            for step, metric in zip(self.timeline.steps, found, strict=False)
            if metric.value is not None
        ]

    def first(self, metric: str) -> float | None:
        """The first defined value."""
        values = self.values(metric)
        return values[0][1] if values else None

    def last(self, metric: str) -> float | None:
        """The mean of the last few defined values."""
        values = [value for _, value in self.values(metric)[-END:]]
        return sum(values) / len(values) if values else None

    def kept_level(self, metric: str) -> str | None:
        """First and last level of a quantity in words, None where it is undefined."""
        first, last = self.first(metric), self.last(metric)
        if first is None or last is None:
            return None
        share = f" ({100 * (last / first):.0f} % of it)" if first > 0 else ""
        return f"{metric} is {last:.3g} at the end, {first:.3g} at the start{share}"


def when(onset: OnsetRecord) -> str:
    """The interval of an onset in words."""
    if onset.last_good is None:
        return f"by step {onset.first_bad}"
    return f"after step {onset.last_good}, by step {onset.first_bad}"


def moved(onset: OnsetRecord) -> str:
    """An onset in words."""
    if onset.kind == "lost":
        why = f" ({onset.reason})" if onset.reason else ""
        return f"{onset.metric} is undefined {when(onset)}{why}"
    verb = "fell" if (onset.after or 0.0) < (onset.before or 0.0) else "rose"
    unit = f" {onset.unit}" if onset.unit else ""
    how = {"sudden": " at once", "gradual": " gradually"}.get(onset.kind, "")
    levels = f"from {onset.before:.3g} to {onset.after:.3g}{unit}"
    return f"{onset.metric} {verb} {levels},{how} {when(onset)}"
