"""A survey on a terminal: what is wrong first, then what is there; some 35 lines of 80 columns.

Comes in: a `Survey`. Goes out: lines of rich `Text`. No rollout text is ever printed; names, paths
and messages are shown with hidden characters escaped, and cannot be taken for markup, terminal
sequences or CI commands.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from ragen_diag.report.lines import LEAST_WIDTH, PlainConsole, entry, fold, print_lines, safe
from ragen_diag.report.numbers import plural
from ragen_diag.report.safetext import clip, encodable, inert, one_line
from ragen_diag.report.survey_facts import facts, subject
from ragen_diag.survey.facts import SEVERITIES, Problem, Severity, Survey

MOST_LINES = 35
"""Budget at 80 columns; warnings and notes that do not fit are counted, not shown."""

_STYLES: Mapping[Severity, str] = {"error": "bold red", "warning": "bold yellow", "note": "dim"}
_LONGEST_MESSAGE: Mapping[Severity, int] = {"error": 1000, "warning": 320, "note": 320}
"""An error may hold the command that is to be run, with its paths."""
_LONGEST_NAME = 60


def print_survey(survey: Survey, *, console: Console | None = None) -> None:
    """Print a survey to standard output, or to `console`."""
    console = console or PlainConsole()
    encoding = console.encoding or "ascii"
    print_lines(survey_lines(survey, width=console.width, encoding=encoding), console)


def survey_lines(survey: Survey, *, width: int = 80, encoding: str = "utf-8") -> list[Text]:
    """The survey as final lines of at most `width` cells that `encoding` can write."""
    # One cell is kept for the mark of a line that looks like a command.
    page = _Page(max(width, LEAST_WIDTH) - 1, encoding)
    head = [Text(line) for line in fold(page.plain(subject(survey)), page.width)]
    head.append(_verdict(survey))
    body = [line for label, detail in facts(survey) for line in page.entry(label, detail)]
    problems = _problems(survey.problems, page, MOST_LINES - len(head) - len(body) - 2)
    parts = [part for part in (head, problems, body) if part]
    lines = [line for part in parts for line in (Text(), *part)][1:]
    return [safe(line, encoding) for line in lines]


@dataclass(frozen=True)
class _Page:
    """Where texts are made safe before they are folded, as that may make them longer."""

    width: int
    encoding: str

    def plain(self, text: str) -> str:
        return inert(encodable(one_line(text), self.encoding))

    def entry(self, label: str, detail: str) -> list[Text]:
        return entry(label, "", self.plain(detail), self.width)


def _verdict(survey: Survey) -> Text:
    counts = Counter(problem.severity for problem in survey.problems)
    told = ", ".join(plural(counts[name], name) for name in SEVERITIES if counts[name])
    word, style = ("usable", "bold green") if survey.usable else ("not usable", _STYLES["error"])
    line = Text(word, style=style)
    return line.append(f": {told}" if told else "", style="not bold default")


def _problems(problems: Sequence[Problem], page: _Page, room: int) -> list[Text]:
    """Errors are shown whatever the room, the rest whole or not at all."""
    lines: list[Text] = []
    shown = 0
    for problem in problems:
        found = _problem(problem, page)
        counted = shown + 1 < len(problems)
        if problem.severity != "error" and len(lines) + len(found) + counted > room:
            break
        lines += found
        shown += 1
    if left := problems[shown:]:
        counts = Counter(problem.severity for problem in left)
        told = ", ".join(plural(counts[name], name) for name in SEVERITIES if counts[name])
        lines += page.entry("more", f"{told}: see --json")
    return lines


def _problem(problem: Problem, page: _Page) -> list[Text]:
    message = clip(one_line(problem.message), _LONGEST_MESSAGE[problem.severity])
    # The name of a file will do where its folder is that of all.
    names = dict.fromkeys(one_line(place).rpartition("/")[2] for place in problem.places)
    places = [clip(name, _LONGEST_NAME) for name in names if name not in message]
    if places and problem.severity != "error":
        message += f" ({', '.join(places)})"
    lines = page.entry(problem.severity, message)
    lines[0].stylize(_STYLES[problem.severity], 0, len(problem.severity) + 2)
    return lines
