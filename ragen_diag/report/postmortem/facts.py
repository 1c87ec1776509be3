"""What the reports of a run say, as short texts, so that no two of them disagree.

Comes in: a `Story`. Goes out: plain texts of ours with names and messages of the run inside,
neither escaped nor clipped. Knows no medium.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import PurePath

from ragen_diag.postmortem.model import (
    NOTHING,
    CorrelationRecord,
    LeadRecord,
    OnsetRecord,
    PostMortem,
    Signature,
    StepSummary,
)
from ragen_diag.postmortem.sweep import Plane, Sweep
from ragen_diag.postmortem.watched import REWARD, SUCCESS
from ragen_diag.report.glossary import TERMS, term
from ragen_diag.report.numbers import amount, number, plural
from ragen_diag.report.story import Story
from ragen_diag.report.words import Words, advice, finding_words, regime_words, signature_words
from ragen_diag.report.words import findings as findings_known
from ragen_diag.report.words import regimes as regimes_known
from ragen_diag.timeline.extract import KEPT_SHARE

KINDS: Mapping[str, str] = {
    "sudden": "at once",
    "gradual": "gradually",
    "unclear": "",
    "lost": "undefined from there on",
}
CONFIDENCE: Mapping[str, str] = {
    "clear": "clear: an onset and a lasting state, and nothing speaks against it",
    "likely": "likely: the evidence is partial, or something speaks against it",
    "possible": "possible: a hint, no more",
}
MOST_CHANGES = 5
"""Changes of the scorer that are named one by one."""
DIRECTIONS: Mapping[int, str] = {-1: "fall", 0: "any", 1: "rise"}

# Names with an underscore: plain words such as "repetition" may be just that.
_NAME = re.compile(r"\b[a-z0-9]+(?:_[a-z0-9.@]*[a-z0-9])+\b")


def words(story: Story) -> Words:
    """Wording of the verdict."""
    return signature_words(story.postmortem.verdict)


def subject(told: PostMortem) -> str:
    """Which run, by which trainer, how much of it."""
    steps = [step.step for step in told.steps]
    rows = sum(step.rows for step in told.steps)
    name = PurePath(told.inputs.run).name or told.inputs.run
    which = f"{steps[0]:,} to {steps[-1]:,}" if len(steps) > 1 else f"({steps[0]:,})"
    return (
        f"{name} ({told.inputs.dump.dialect}): {plural(len(steps), 'step')} {which},"
        f" {plural(rows, 'response')}"
    )


def scorer(told: PostMortem) -> str:
    """By which checkpoints the steps were scored."""
    scored = [step for step in told.steps if step.unscored is None]
    unscored = len(told.steps) - len(scored)
    left = f"; {plural(unscored, 'step')} not scored" if unscored else ""
    if not scored:
        why = next((step.unscored for step in told.steps if step.unscored), "")
        return f"nothing scored: {why}"
    lags = [step.lag for step in scored if step.lag is not None]
    checkpoints = plural(len(told.inputs.checkpoints), "checkpoint")
    if not lags:
        return f"all scored with one yardstick, {told.inputs.scorer}{left}"
    own = sum(lag == 0 for lag in lags)
    far = f", the others up to {max(lags):,} steps late" if max(lags) else ""
    return f"{checkpoints}: {own} of {len(scored)} steps scored with their own{far}{left}"


def verdict_onset(told: PostMortem) -> OnsetRecord | None:
    """The onset that the verdict rests on; without a signature the earliest alarm."""
    held = next((s for s in told.signatures if s.code == told.verdict), None)
    alarms = [o for o in happened(told) if o.alarm]
    if held is not None and held.first_bad is not None:
        same = [
            o
            for o in happened(told)
            if (o.last_good, o.first_bad) == (held.last_good, held.first_bad)
        ]
        if same:
            return same[0]
    if told.verdict == NOTHING:
        return None
    return min(alarms, key=lambda onset: onset.first_bad or 0, default=None)


def happened(told: PostMortem) -> list[OnsetRecord]:
    """All onsets, alarms first, then in the order of time."""
    found = [onset for onset in told.onsets if onset.happened]
    return sorted(found, key=lambda o: (not o.alarm, o.first_bad or 0, o.last_good or 0))


def when(last_good: int | None, first_bad: int | None) -> str:
    """The interval of an onset.

    >>> when(30, 90), when(None, 10)
    ('after step 30, by step 90', 'by step 10')
    """
    if first_bad is None:
        return "at no step of its own"
    if last_good is None:
        return f"by step {first_bad:,}"
    return f"after step {last_good:,}, by step {first_bad:,}"


def label(metric: str) -> str:
    """What a quantity is called."""
    return term(metric).label


def movement(onset: OnsetRecord) -> str:
    """From where to where.

    Without the time: see `when`.
    """
    name = label(onset.metric)
    if onset.kind == "lost":
        return f"{name} is undefined" + (f" ({onset.reason})" if onset.reason else "")
    if onset.before is None or onset.after is None:
        return name
    verb = "fell" if onset.after < onset.before else "rose"
    share = term(onset.metric).share
    before = amount(onset.before, share=share)
    after = amount(onset.after, share=share, unit="" if share else onset.unit)
    how = KINDS.get(onset.kind, "")
    return f"{name} {verb} from {before} to {after}" + (f", {how}" if how else "")


def spoken(sentence: str) -> str:
    """A sentence of evidence with what its quantities and regimes are called, for their names.

    >>> spoken("retrieval_skill fell; the last 9 judged steps are template_collapse")
    'retrieval skill fell; the last 9 judged steps are template collapse'
    """

    def called(found: re.Match[str]) -> str:
        name = found[0]
        if name in TERMS:
            return TERMS[name].label
        known = regimes_known().get(name) or findings_known().get(name)
        return known.title.lower() if known else name

    return _NAME.sub(called, sentence)


def least_change(onset: OnsetRecord) -> str:
    """What would have counted as a change."""
    parts = []
    if relative := onset.material.get("relative"):
        parts.append(f"{100 * relative:.0f} % of its level")
    if absolute := onset.material.get("absolute"):
        share = term(onset.metric).share
        parts.append(f"{absolute * 100:.0f} points" if share else number(absolute))
    return " and ".join(parts) or "any"


def lead(record: LeadRecord) -> str:
    """Which came first, and how sure that is."""
    one, other = label(record.first), label(record.second)
    if record.steps is None or record.low is None or record.high is None:
        return f"{one} and {other}: unknown"
    sure = record.probability or 0.0
    if record.low <= 0 <= record.high and 0.05 < sure < 0.95:
        return (
            f"{one} and {other} turned too close together to tell which was first"
            f" ({record.steps:+.0f} steps, {record.low:+.0f} to {record.high:+.0f})"
        )
    ahead, steps = record.steps >= 0, abs(record.steps)
    first, then = (one, other) if ahead else (other, one)
    low, high = (record.low, record.high) if ahead else (-record.high, -record.low)
    chance = sure if ahead else 1 - sure
    return (
        f"{first} turned {steps:.0f} steps before {then}"
        f" (95 %: {low:.0f} to {high:.0f}; first with {_sure(chance)})"
    )


def _sure(chance: float) -> str:
    return "over 99 %" if chance > 0.99 else f"{100 * chance:.0f} %"


def leads(told: PostMortem) -> list[str]:
    """All lead times, those of outcomes first, as they were asked for."""
    return [lead(record) for record in told.leads]


def leads_over_outcomes(told: PostMortem) -> list[str]:
    """The lead times over success and reward alone."""
    return [lead(record) for record in told.leads if record.second in (SUCCESS, REWARD)]


def regimes(steps: Sequence[StepSummary]) -> list[tuple[str, int, int]]:
    """Stretches of one regime: label, first and last step."""
    stretches = []
    for name, run in groupby(steps, key=lambda step: step.regime):
        members = [step.step for step in run]
        stretches.append((name, members[0], members[-1]))
    return stretches


def regime_line(steps: Sequence[StepSummary]) -> str:
    """Regimes over steps in one line."""
    return "; ".join(
        f"{first:,} to {last:,} {regime_words(name).title.lower()}"
        if first != last
        else f"{first:,} {regime_words(name).title.lower()}"
        for name, first, last in regimes(steps)
    )


def others(told: PostMortem) -> list[Signature]:
    """The signatures that hold beside the verdict."""
    return [held for held in told.signatures if held.code != told.verdict]


def to_do(told: PostMortem, code: str, kept: str) -> tuple[str, ...]:
    """The steps to take, by the trainer's own option names where they are known."""
    return advice(signature_words(code), told.inputs.dump.dialect, kept=kept)


def kept_ratio(story: Story) -> str:
    """The share of groups that the filter would have kept, at the onset and at the end."""
    found = story.timeline.metrics.get(KEPT_SHARE, ())
    known = {
        step: metric.value
        for step, metric in zip(story.timeline.steps, found, strict=False)
        if metric.value is not None
    }
    if not known:
        return ""
    onset = verdict_onset(story.postmortem)
    steps = list(known)
    at = onset.first_bad if onset is not None and onset.first_bad in known else steps[0]
    told = f"It would have kept {100 * known[at]:.0f} % of the groups at step {at:,}"
    last = steps[-1]
    return f"{told} and {100 * known[last]:.0f} % at step {last:,}." if last != at else f"{told}."


def cost(told: PostMortem) -> str:
    """What was spent since the first bad step."""
    spent = told.cost
    if spent is None or spent.hours is None:
        return ""
    text = (
        f"{plural(spent.steps, 'step')} since step {spent.since_step:,}:"
        f" {number(spent.hours)} hours"
    )
    return text if spent.money is None else f"{text}, {spent.money:,.2f} for GPUs"


CORRELATION_HEAD = ("over steps", "Spearman [95 %]", "steps", "RAGEN-2, across runs")


def correlation(record: CorrelationRecord) -> tuple[str, str, str, str]:
    """What with what; the value with its interval; worth how many steps; the paper's."""
    what = f"{label(record.metric)} with {label(record.other)}"
    if record.value is None:
        return what, f"n/a ({record.reason})", f"{record.n:,}", record.paper or ""
    value = f"{record.value:+.2f}"
    if record.low is not None and record.high is not None:
        value += f" [{record.low:+.2f}, {record.high:+.2f}]"
    elif record.reason:
        value += f" ({record.reason})"
    worth = f"{record.n:,}"
    if record.effective_n is not None:
        worth += f", worth {record.effective_n:.1f}"
    return what, value, worth, record.paper or ""


def plane(one: Plane) -> str:
    """Whether success goes with a quantity across the runs of a sweep."""
    outcome, quantity = label(one.outcome), label(one.quantity)
    what = f"{outcome[0].upper()}{outcome[1:]} against {quantity}"
    if one.spearman is None:
        return f"{what}: {one.reason}"
    order = {
        "rising": "rising without exception",
        "falling": "falling without exception",
        "no": "not monotone",
        None: "order unknown",
    }[one.monotone]
    return (
        f"{what}: {order}; Spearman {one.spearman:+.2f} over {plural(one.n, 'run')}"
        f" (p = {one.p_value:.2g})"
    )


def marks(told: PostMortem) -> list[str]:
    """What else happened: resumes, changes of the scorer, gaps."""
    said = [f"resumed at step {step:,}" for step in told.marks.resumes]
    changes = told.marks.scorer_changes
    if len(changes) > MOST_CHANGES:
        said.append(f"another checkpoint scores from each of {len(changes):,} steps on")
    else:
        said += [f"another checkpoint scores from step {step:,} on" for step in changes]
    said += [f"nothing between steps {low:,} and {high:,}" for low, high in told.marks.gaps]
    return said


def scored_by(step: StepSummary) -> str:
    """The scorer of one step."""
    if step.unscored is not None:
        return f"none: {step.unscored}"
    if step.lag is None:
        return "yardstick"
    return "own" if step.lag == 0 else f"step {step.scorer_step}, {step.lag:,} late"


def remark(onset: OnsetRecord) -> str:
    """Why there is none, what speaks for caution, and which steps were left aside."""
    parts = [onset.reason or "", onset.caution or ""]
    if onset.odd_steps:
        odd = ", ".join(f"{step:,}" for step in onset.odd_steps)
        parts.append(f"odd and left aside: {odd}")
    return "; ".join(part for part in parts if part)


def findings(step: StepSummary) -> str:
    """What voids or warns at a step, and how many notes there are."""
    said = [
        f"{finding_words(code).title.lower()} ({severity})"
        for code, severity in step.findings.items()
        if severity != "note"
    ]
    if notes := sum(severity == "note" for severity in step.findings.values()):
        said.append(plural(notes, "note"))
    return ", ".join(said)


def headline(story: Story) -> list[tuple[str, str]]:
    """What stands under the verdict: when, what turned first, what it cost."""
    told = story.postmortem
    rows = []
    onset = verdict_onset(told)
    if onset is not None:
        moved = f"{when(onset.last_good, onset.first_bad)}: {movement(onset)}"
        rows.append(("Onset", moved))
    order = leads_over_outcomes(told)
    rows += [("Order" if place == 0 else "", text) for place, text in enumerate(order)]
    if told.verdict == NOTHING:
        rows.append(("Watched", watched(told)))
    rows.append(("Regimes", regime_line(told.steps)))
    if spent := cost(told):
        rows.append(("Cost", spent))
    return rows


def watched(told: PostMortem) -> str:
    """The alarms that could have been raised."""
    names = [
        f"{label(o.metric)} ({DIRECTIONS[o.direction]} of {least_change(o)})"
        for o in told.onsets
        if o.alarm and o.kind != "too_few"
    ]
    return ", ".join(dict.fromkeys(names))


SWEEP_HEAD = ("run", "verdict", "last step", "skill", "H(Z|X)", "success", "kept at rho 0.9")


def sweep_rows(sweep: Sweep) -> list[list[str]]:
    """A row of texts per run, under `SWEEP_HEAD`."""
    rows = []
    for run in sweep.runs:
        sure = f" ({run.confidence})" if run.confidence else ""
        ends = [
            f"{amount(end.first, share=share)} to {amount(end.last, share=share)}"
            for end, share in (
                (run.mi, False),
                (run.entropy, False),
                (run.success, True),
                (run.kept_share, True),
            )
        ]
        verdict = f"{signature_words(run.verdict).title}{sure}"
        rows.append([run.name, verdict, f"{run.last_step:,}", *ends])
    return rows
