"""A plot as the reports take it: finished bytes and texts. Knows no matplotlib."""

from dataclasses import dataclass

NAMES = ("quadrant", "crossscores", "rewards", "lengths")
FORMATS = ("svg", "png")


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A plot's title, what to see in it, its `svg` element for a page and its file.

    Where it could not be drawn the last two are None and `caption` says why.
    """

    name: str
    title: str
    caption: str
    inline: str | None = None
    file: bytes | None = None
