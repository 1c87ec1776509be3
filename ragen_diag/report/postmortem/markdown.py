"""`summary.md` of a run and of a sweep, for pull requests and chats.

Comes in: a `Story` or a `SweepStory`. Goes out: GitHub-flavoured Markdown. No rollout text is in
it; every text is escaped.
"""

from collections.abc import Iterable, Sequence

from ragen_diag.postmortem.model import NOTHING, Signature
from ragen_diag.report.markdown import code, escape, table
from ragen_diag.report.postmortem import facts
from ragen_diag.report.story import Story, SweepStory
from ragen_diag.report.words import regime_words, signature_words


def render_story(story: Story) -> str:
    """The post-mortem as Markdown text with a final newline."""
    told = story.postmortem
    words = facts.words(story)
    onset = facts.verdict_onset(told)
    sure = f" ({told.confidence})" if told.confidence else ""
    blocks = [
        f"# {escape(words.title)}{sure}",
        escape(words.meaning),
        "" if onset is None else f"**Onset** {facts.when(onset.last_good, onset.first_bad)}",
        f"{escape(facts.subject(told))}  \n{escape(facts.scorer(told))}",
        escape(facts.cost(told)),
        _list("## What came first", facts.leads(told)),
        _numbered("## What to do", facts.to_do(told, told.verdict, facts.kept_ratio(story))),
        *(_signature(held) for held in told.signatures),
        "## What turned" if facts.happened(told) else "",
        _onsets(story),
        _list("## What else happened", facts.marks(told)),
        "## Steps",
        _steps(story),
        "## Correlation over steps" if told.correlations else "",
        _correlations(story),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def render_sweep(story: SweepStory) -> str:
    """The sweep as Markdown text with a final newline."""
    rows = [[escape(cell) for cell in row] for row in facts.sweep_rows(story.sweep)]
    planes = _list("## Across the runs", [facts.plane(plane) for plane in story.sweep.planes])
    return f"# Sweep of {len(rows)} runs\n\n{table(facts.SWEEP_HEAD, rows)}\n\n{planes}\n"


def _signature(held: Signature) -> str:
    words = signature_words(held.code)
    lines = [
        f"## {escape(words.title)} {code(held.code)}: {held.confidence}",
        "",
        *(f"- for: {escape(facts.spoken(text))}" for text in held.evidence),
        *(f"- against: {escape(facts.spoken(text))}" for text in held.against),
        *(f"- to make sure: {escape(text)}" for text in words.confirm),
    ]
    return "\n".join(lines)


def _onsets(story: Story) -> str:
    told = story.postmortem
    rows = [
        [
            f"{escape(facts.label(onset.metric))} {code(onset.metric)}",
            "yes" if onset.alarm else "",
            escape(facts.movement(onset)),
            facts.when(onset.last_good, onset.first_bad),
            escape(onset.caution or ""),
        ]
        for onset in facts.happened(told)
    ]
    if rows:
        return table(("quantity", "alarm", "movement", "when", "caution"), rows)
    return escape(facts.words(story).meaning) if told.verdict == NOTHING else ""


def _steps(story: Story) -> str:
    rows = [
        [
            f"{step.step:,}",
            escape(regime_words(step.regime).title),
            escape(facts.scored_by(step)),
            f"{step.scored_rows:,} of {step.rows:,}",
            ", ".join(code(name) for name, how in step.findings.items() if how != "note"),
        ]
        for step in story.postmortem.steps
    ]
    return table(("step", "regime", "scorer", "scored", "warnings"), rows, right="step,scored")


def _correlations(story: Story) -> str:
    rows = [
        [escape(cell) for cell in facts.correlation(record)]
        for record in story.postmortem.correlations
    ]
    return table(facts.CORRELATION_HEAD, rows) if rows else ""


def _list(heading: str, lines: Iterable[str]) -> str:
    items = [f"- {escape(line)}" for line in lines]
    return "\n".join([heading, "", *items]) if items else ""


def _numbered(heading: str, lines: Sequence[str]) -> str:
    items = [f"{place}. {escape(line)}" for place, line in enumerate(lines, start=1)]
    return "\n".join([heading, "", *items]) if items else ""
