"""The verdict on a terminal: at most 20 lines at 80 columns, readable without colour.

Comes in: a `Result`. Goes out: lines of rich `Text`, laid out here and not by rich, so that numbers
and paths are folded and never cut. No rollout text is ever printed; names and messages are shown
with hidden characters escaped and cannot be taken for markup, terminal sequences or CI commands.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ragen_diag.judging.findings import SEVERITIES, Finding
from ragen_diag.report import facts
from ragen_diag.report.lines import LEAST_WIDTH, PlainConsole, entry, fold, print_lines, safe
from ragen_diag.report.numbers import plural
from ragen_diag.report.reward import applicability, flat_groups
from ragen_diag.report.safetext import clip, one_line, visible
from ragen_diag.report.words import Tone, finding_words, regime_words
from ragen_diag.result import Result

MOST_LINES = 20
"""Budget at 80 columns; findings that do not fit are counted, not shown."""

STYLES: Mapping[Tone, str] = {
    "good": "bold green",
    "caution": "bold yellow",
    "bad": "bold red",
    "void": "bold magenta",
    "neutral": "bold cyan",
}
_LONGEST_MESSAGE = 240


def print_verdict(result: Result, folder: Path, *, console: Console | None = None) -> None:
    """Print the verdict to standard output, or to `console`."""
    console = console or PlainConsole()
    encoding = console.encoding or "ascii"
    lines = verdict_lines(result, folder, width=console.width, encoding=encoding)
    print_lines(lines, console)


def verdict_lines(
    result: Result, folder: Path, *, width: int = 80, encoding: str = "utf-8"
) -> list[Text]:
    """The verdict as final lines of at most `width` cells that `encoding` can write."""
    width = max(width, LEAST_WIDTH)
    head = [*_subject(result, width), Text(), *_verdict(result, width)]
    body = [*_axes(result, width), *_rows(result, width)]
    report = visible(str(folder / "report.html"), keep="")
    foot = [Text(), *entry("report", "", report, width, indent=0)]
    room = MOST_LINES - len(head) - len(body) - len(foot) - 1
    void, rest = _findings(result, width, room)
    lines = [*head, *void, Text(), *body, *rest, *foot]
    return [safe(line, encoding) for line in lines]


def _subject(result: Result, width: int) -> Iterator[Text]:
    for text in (facts.subject(result), facts.scorer(result)):
        for line in fold(one_line(text), width):
            yield Text(line, style="dim")


def _verdict(result: Result, width: int) -> Iterator[Text]:
    words = regime_words(result.regime.label)
    title = one_line(clip(words.title.upper(), 40))
    # What a void batch would have been is for the page: here the reason why it is void goes first.
    remaining = "" if words.tone == "void" else facts.candidates(result)
    meaning = one_line(f"{words.meaning} {remaining}")
    lead = f"  {title}  "
    if len(lead) > width // 2:
        for line in fold(title, width - 2):
            yield Text(f"  {line}", style=STYLES[words.tone])
        lead, folded = " " * 4, ["", *fold(meaning, width - 4)]
    else:
        folded = fold(meaning, width - len(lead)) or [""]
        yield Text(lead, style=STYLES[words.tone]).append(folded[0], style="not bold default")
    for line in folded[1:]:
        yield Text(" " * len(lead) + line)


def _axes(result: Result, width: int) -> Iterator[Text]:
    void = regime_words(result.regime.label).tone == "void"
    for axis in facts.axes(result):
        check = axis.deciding
        detail = " ".join(part for part in (check.label, check.value, check.interval) if part)
        if check.check.value is not None and check.check.threshold is not None:
            detail += f", cut {check.cut}"
        elif void:
            # The finding that voids the verdict stands above and says why.
            what = f"MI and {check.label}" if axis.name == "mi" else check.label
            detail = f"{what} not available"
        state = axis.state if axis.state == "n/a" else axis.state.upper()
        yield from entry(axis.title, state, one_line(detail), width, style="bold")
        if axis.reason and not void:
            yield from entry("", " ", one_line(clip(axis.reason, 100)), width)
        if axis.name == "mi" and check.check.value is not None:
            for name, text in (
                ("retrieval", facts.retrieval(result)),
                ("MI", facts.mutual_information(result)),
            ):
                if text:
                    yield from entry("", " ", one_line(f"{name} {text}"), width)


def _rows(result: Result, width: int) -> Iterator[Text]:
    if valid := facts.valid_reasoning(result):
        yield from entry("valid reasoning", "", one_line(valid), width)
    reward = flat_groups(result.reward)
    if result.reward.cv_std is not None:
        yield from entry("reward variance", "", one_line(reward), width)
        yield from entry("", "", one_line(applicability(result.reward)), width)
    else:
        why = f": {clip(result.reward.reason, 60)}" if result.reward.reason else ""
        yield from entry("reward variance", "", one_line(reward + why), width)
    if left := facts.left_out(result):
        total = sum(n for _, n in left)
        shown = ", ".join(f"{n:,} {clip(reason, 30)}" for reason, n in left[:3])
        more = f", {plural(len(left) - 3, 'more reason')}" if len(left) > 3 else ""
        detail = shown if len(left) == 1 else f"{total:,}: {shown}{more}"
        yield from entry("left out", "", one_line(detail), width)


def _findings(result: Result, width: int, room: int) -> tuple[list[Text], list[Text]]:
    """What voids the verdict, to stand under it, and below the numbers the rest and the next step.

    A finding is shown whole or counted. The first that voids is why there is no verdict and is
    shown whatever the room; warnings go before the next step, and that before notes.
    """
    found = facts.by_severity(result)
    tail = _next_step(result, width)
    void: list[Text] = []
    rest: list[Text] = []
    shown = 0
    for finding in found:
        lines = _finding(finding, width)
        is_void, is_note = finding.severity == "void", finding.severity == "note"
        counted = shown + 1 < len(found)
        kept = len(tail) if is_note else 0
        first = is_void and not void
        if not first and len(void) + len(rest) + len(lines) + counted + kept > room:
            break
        (void if is_void else rest).extend(lines)
        shown += 1
    if left := found[shown:]:
        severities = Counter(finding.severity for finding in left)
        told = ", ".join(plural(severities[name], name) for name in SEVERITIES if severities[name])
        rest += entry("findings", "", f"{told} in report.html", width)
    if len(void) + len(rest) + len(tail) > room:
        tail = []
    return void, [*rest, *tail]


def _next_step(result: Result, width: int) -> list[Text]:
    steps = facts.to_do(regime_words(result.regime.label), result)
    sentence = re.split(r"(?<=\.) (?=[A-Z])", steps[0])[0] if steps else ""
    return entry("next", "", sentence, width) if sentence else []


def _finding(finding: Finding, width: int) -> list[Text]:
    message = one_line(finding.message) or finding_words(finding.code).title
    style = STYLES["void"] if finding.severity == "void" else ""
    lines = entry(finding.severity, "", clip(message, _LONGEST_MESSAGE), width)
    lines[0].stylize(style, 0, len(finding.severity) + 2)
    return lines
