"""What all plots share: style, colours, and saving as SVG or PNG that is equal byte for byte.

Text and lines are drawn in one sentinel colour. Inline SVG turns it into `currentColor`, so that a
page's dark mode reaches the plot; files turn it into near-black on white.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#010203"
"""The sentinel: nothing else may have this colour."""
_FILE_INK, _PAPER = "#1b1f24", "#ffffff"

REGIME_COLOURS: Mapping[str, tuple[str, str]] = {
    "diverse_reasoning": ("#009e73", "o"),
    "template_collapse": ("#d55e00", "X"),
    "compressed_reasoning": ("#e69f00", "s"),
    "low_entropy_collapse": ("#cc79a7", "v"),
}
"""Colour and marker of each quadrant, from the palette of Okabe and Ito."""
OTHER = ("#0072b2", "D")
BUCKET_COLOURS = ("#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30")
GREY = "#8a9099"

_STYLE: Mapping[str, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.facecolor": "none",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.facecolor": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "ragen-diag",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.color": INK,
    "ytick.labelsize": 8,
    "ytick.major.width": 0.6,
}


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure with its title and what to see in it; without a figure, `caption` says why."""

    name: str
    title: str
    caption: str
    figure: Figure | None = None


def styled() -> Any:
    """Context with the style of these plots, whatever the user's own matplotlibrc says."""
    style: dict[Any, Any] = {
        key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")
    }
    return mpl.rc_context(style | dict(_STYLE))


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of that size in inches with one set of axes; call it inside `styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def settle(figure: Figure) -> None:
    """Lay the figure out once, so that it looks the same however often it is saved."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def svg(figure: Figure) -> str:
    """The figure as SVG text in the sentinel colour, equal for equal figures."""
    buffer = io.StringIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with styled():
        figure.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def svg_file(drawing: str) -> bytes:
    """SVG of `svg` as a file: near-black ink on white paper."""
    paper = f'<rect width="100%" height="100%" fill="{_PAPER}"/>'
    inked = drawing.replace(INK, _FILE_INK)
    return re.sub(r"(<svg\b[^>]*>)", rf"\1\n {paper}", inked, count=1).encode()


def png_file(figure: Figure) -> bytes:
    """The figure as a picture on white paper, for which the sentinel is black enough."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format="png", dpi=200, facecolor=_PAPER, metadata={"Software": None})
    return buffer.getvalue()


def inline(drawing: str, *, name: str, title: str, caption: str) -> str:
    """SVG of `svg` as an element for a page, in the page's own text colour, with its meaning."""
    element = drawing.replace(INK, "currentColor")
    element = element[element.index("<svg") :]
    # Several plots share a page, so each one's ids and references get its name.
    element = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", element)
    view = re.search(r'viewBox="[^"]*"', element)
    head = (
        f'<svg class="plot" role="img" aria-labelledby="{name}-title {name}-desc"'
        f' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f" {view[0] if view else ''}>"
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(caption)}</desc>'
    )
    return re.sub(r"<svg\b[^>]*>", lambda _: head, element, count=1)
