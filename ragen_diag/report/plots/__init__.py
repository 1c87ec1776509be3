"""The four plots of a report. Comes in: a `Product`. Goes out: figures with title and caption.

Figures are `matplotlib.figure.Figure` objects, never pyplot's: no display, no global registry,
nothing to leak. Text in a plot is numbers and words of ours, never data of unknown script.
"""

from dataclasses import replace

from ragen_diag.report.drawn import Drawn
from ragen_diag.report.plots.crossscores import draw_crossscores
from ragen_diag.report.plots.drawing import Plot, inline, png_file, svg, svg_file
from ragen_diag.report.plots.lengths import draw_lengths
from ragen_diag.report.plots.quadrant import draw_quadrant
from ragen_diag.report.plots.rewards import draw_rewards
from ragen_diag.report.product import Product

__all__ = ["Plot", "draw_figures", "draw_plots", "finish"]


def draw_plots(product: Product, plot_format: str = "svg") -> tuple[Drawn, ...]:
    """All plots, each as an element for a page and as a file of that format ("svg" or "png")."""
    return tuple(finish(plot, plot_format) for plot in draw_figures(product))


def finish(plot: Plot, plot_format: str) -> Drawn:
    """A plot as an element for a page and as a file of that format."""
    drawn = Drawn(name=plot.name, title=plot.title, caption=plot.caption)
    if plot.figure is None:
        return drawn
    drawing = svg(plot.figure)
    return replace(
        drawn,
        inline=inline(drawing, name=plot.name, title=plot.title, caption=plot.caption),
        file=svg_file(drawing) if plot_format == "svg" else png_file(plot.figure),
    )


def draw_figures(product: Product) -> tuple[Plot, ...]:
    """All plots as figures; one that cannot be drawn has a reason and no figure."""
    return (
        draw_quadrant(product),
        draw_crossscores(product),
        draw_rewards(product),
        draw_lengths(product),
    )
