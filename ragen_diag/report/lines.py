"""Lines on a terminal, laid out here and not by rich, so that numbers and paths are folded and
never cut.

Comes in: texts, already made visible. Goes out: rich `Text`s that are final. Knows no results.
"""

import re
from collections.abc import Iterable

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from ragen_diag.report.safetext import encodable, inert

LEAST_WIDTH = 40

_LABEL, _KEY = 18, 9
_LEAST_ROOM = 26
# The blanks inside "53.1 %" and "[0.101, 0.214]": no line may end there.
_GLUE = "\u00a0"
_TOGETHER = re.compile(r" (?=%)|(?<=\d,) (?=-?\d[^\s\]]*\])")


class PlainConsole(Console):
    """A console that leaves it to the command line what a closed pipe means: rich exits with 1,
    which is a failed gate's."""

    def on_broken_pipe(self) -> None:
        # Called while the error is being handled.
        raise


def print_lines(lines: Iterable[Text], console: Console) -> None:
    """Print final lines as they are."""
    for line in lines:
        # Without soft_wrap rich would wrap lines again.
        console.print(line, soft_wrap=True, highlight=False)


def safe(line: Text, encoding: str) -> Text:
    """A line that `encoding` can write, and that no CI runner takes for a command."""
    plain = inert(encodable(line.plain, encoding))
    if plain == line.plain:
        return line
    return Text(plain, style=line.style)


def fold(text: str, width: int) -> list[str]:
    """Lines of at most `width` terminal cells, broken at spaces, and inside words only where a
    word alone is wider.

    >>> fold("reward variance 53.1 %", 12), fold("/a/very/long/path", 8)
    (['reward', 'variance', '53.1 %'], ['/a/very/', 'long/pat', 'h'])
    """
    lines: list[str] = []
    current = ""
    for word in _TOGETHER.sub(_GLUE, text).split(" "):
        joined = f"{current} {word}" if current else word
        if cell_len(joined) <= width:
            current = joined
            continue
        if current:
            lines.append(current)
        pieces = chop_cells(word, width) if cell_len(word) > width else [word]
        lines += pieces[:-1]
        current = pieces[-1] if pieces else ""
    return [line.replace(_GLUE, " ") for line in [*lines, current] if line]


def entry(
    label: str, key: str, detail: str, width: int, *, indent: int = 2, style: str = ""
) -> list[Text]:
    """Label, key and detail in three columns; the detail is folded under itself.

    On a terminal too narrow for that the detail stands below the label.
    """
    first = Text(" " * indent + label.ljust(_LABEL))
    if key:
        first.append(key.ljust(_KEY), style=style)
    lead = len(first)
    if width - lead < _LEAST_ROOM:
        below = [Text(" " * (indent + 2) + line) for line in fold(detail, width - indent - 2)]
        first.rstrip()
        return [first, *below] if first.plain else below
    folded = fold(detail, width - lead) or [""]
    first.append(folded[0])
    first.rstrip()
    return [first, *(Text(" " * lead + line) for line in folded[1:])]
