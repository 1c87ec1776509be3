"""The story of a run on a terminal: some twenty-five lines at 80 columns, readable without colour.

Comes in: a `Story` or a `SweepStory`. Goes out: lines of rich `Text`, laid out by `lines`. No
rollout text is printed; names and messages are shown with hidden characters escaped.
"""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ragen_diag.postmortem.model import NOTHING
from ragen_diag.report.lines import LEAST_WIDTH, PlainConsole, entry, fold, print_lines, safe
from ragen_diag.report.numbers import plural
from ragen_diag.report.postmortem import facts
from ragen_diag.report.safetext import clip, one_line, visible
from ragen_diag.report.story import Story, SweepStory
from ragen_diag.report.terminal import STYLES
from ragen_diag.report.words import signature_words

MOST_MOVEMENTS = 6
MOST_EVIDENCE = 3


def print_postmortem(story: Story, folder: Path, *, console: Console | None = None) -> None:
    """Print the story to standard output, or to `console`."""
    console = console or PlainConsole()
    lines = story_lines(story, folder, width=console.width, encoding=console.encoding or "ascii")
    print_lines(lines, console)


def story_lines(
    story: Story, folder: Path, *, width: int = 80, encoding: str = "utf-8"
) -> list[Text]:
    """The story as final lines of at most `width` cells that `encoding` can write."""
    width = max(width, LEAST_WIDTH)
    lines = [
        *_subject(story, width),
        Text(),
        *_verdict(story, width),
        Text(),
        *_body(story, width),
        Text(),
        *entry("report", "", visible(str(folder / "postmortem.html"), keep=""), width, indent=0),
    ]
    return [safe(line, encoding) for line in lines]


def _subject(story: Story, width: int) -> Iterator[Text]:
    told = story.postmortem
    for text in (facts.subject(told), facts.scorer(told)):
        for line in fold(one_line(text), width):
            yield Text(line, style="dim")


def _verdict(story: Story, width: int) -> Iterator[Text]:
    words, told = facts.words(story), story.postmortem
    title = words.title.upper() + (f" ({told.confidence})" if told.confidence else "")
    yield Text(f"  {title}", style=STYLES[words.tone])
    for line in fold(one_line(words.meaning), width - 4):
        yield Text(f"    {line}")


def _body(story: Story, width: int) -> Iterator[Text]:
    told = story.postmortem
    if (onset := facts.verdict_onset(told)) is not None:
        yield from _entry("onset", facts.when(onset.last_good, onset.first_bad), width)
    yield from _movements(story, width)
    for place, text in enumerate(facts.leads_over_outcomes(told)):
        yield from _entry("order" if place == 0 else "", text, width)
    yield from _entry("regimes", facts.regime_line(told.steps), width)
    held = next((one for one in told.signatures if one.code == told.verdict), None)
    if held is not None:
        for place, text in enumerate(held.against[:MOST_EVIDENCE]):
            yield from _entry("against" if place == 0 else "", facts.spoken(text), width)
    if others := facts.others(told):
        names = ", ".join(
            f"{signature_words(one.code).title.lower()} ({one.confidence})" for one in others
        )
        yield from _entry("also", names, width)
    for coverage in told.inputs.history:
        text = f"{plural(coverage.names, 'scalar')} of {coverage.path}, at {coverage.matched:,} of"
        yield from _entry("log", f"{text} {plural(len(told.steps), 'step')}", width)
    for place, text in enumerate(facts.marks(told)[:3]):
        yield from _entry("marks" if place == 0 else "", text, width)
    if spent := facts.cost(told):
        yield from _entry("cost", spent, width)
    steps = facts.to_do(told, told.verdict, facts.kept_ratio(story))
    if steps:
        yield from _entry("next", steps[0], width)


def _movements(story: Story, width: int) -> Iterator[Text]:
    told = story.postmortem
    alarms = [onset for onset in facts.happened(told) if onset.alarm]
    for place, onset in enumerate(alarms[:MOST_MOVEMENTS]):
        text = f"{facts.movement(onset)}, {facts.when(onset.last_good, onset.first_bad)}"
        yield from _entry("turned" if place == 0 else "", text, width)
    if left := alarms[MOST_MOVEMENTS:]:
        yield from _entry("", f"and {len(left):,} more", width)
    if told.verdict == NOTHING:
        watched = (o for o in told.onsets if o.alarm and o.kind != "too_few")
        names = ", ".join(dict.fromkeys(facts.label(onset.metric) for onset in watched))
        yield from _entry("watched", names, width)


def _entry(label: str, text: str, width: int) -> list[Text]:
    return entry(label, "", one_line(clip(text, 400)), width)


def print_sweep(story: SweepStory, folder: Path, *, console: Console | None = None) -> None:
    """Print the table of runs and what the planes say."""
    console = console or PlainConsole()
    lines = sweep_lines(story, folder, width=console.width, encoding=console.encoding or "ascii")
    print_lines(lines, console)


def sweep_lines(
    story: SweepStory, folder: Path, *, width: int = 80, encoding: str = "utf-8"
) -> list[Text]:
    """The sweep as final lines of at most `width` cells that `encoding` can write."""
    width = max(width, LEAST_WIDTH)
    lines: list[Text] = []
    for name, verdict, last, *ends in facts.sweep_rows(story.sweep):
        named = fold(one_line(clip(name, width)), width)
        lines += [Text(line, style="bold") for line in named]
        lines += _entry("verdict", f"{verdict}, step {last}", width)
        for head, end in zip(facts.SWEEP_HEAD[3:], ends, strict=True):
            lines += _entry(head, end, width)
    lines.append(Text())
    for place, plane in enumerate(story.sweep.planes):
        lines += _entry("" if place else "across runs", facts.plane(plane), width)
    report = visible(str(folder / "sweep.html"), keep="")
    lines += [Text(), *entry("report", "", report, width, indent=0)]
    return [safe(line, encoding) for line in lines]
