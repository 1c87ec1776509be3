"""The plane of the paper's Fig. 1: where this step lies, with intervals and thresholds."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ragen_diag.metrics.metric import Metric
from ragen_diag.report.plots.drawing import (
    INK,
    OTHER,
    REGIME_COLOURS,
    Plot,
    new_axes,
    settle,
    styled,
)
from ragen_diag.report.product import Product
from ragen_diag.report.words import regime_words
from ragen_diag.result import Result

_X, _Y = "retrieval_skill", "conditional_entropy_est"
_TITLE = "Where this step lies"
# Corner of the plane: regime, horizontal and vertical alignment of its name.
_CORNERS = (
    ("template_collapse", "left", "top"),
    ("diverse_reasoning", "right", "top"),
    ("low_entropy_collapse", "left", "bottom"),
    ("compressed_reasoning", "right", "bottom"),
)


def draw_quadrant(product: Product) -> Plot:
    """Retrieval skill against H(Z|X) per token."""
    result = product.result
    x, y = result.metrics.get(_X), result.metrics.get(_Y)
    if x is None or y is None or x.value is None or y.value is None:
        return Plot(name="quadrant", title=_TITLE, caption="Not drawn: an axis was not measured.")
    cut_x, cut_y = _threshold(result, "mi", _X), _threshold(result, "entropy", _Y)
    with styled():
        figure, axes = new_axes(5.4, 4.2)
        points = [(x, y), *_baseline(product.baseline)]
        _limits(axes, points, cut_x, cut_y)
        if cut_x is not None and cut_y is not None:
            _regions(axes, (cut_x, cut_y), (_at(x), _at(y)))
        _cuts(axes, cut_x, cut_y)
        for older in points[1:]:
            _arrow(axes, older, (x, y))
            _point(axes, older, "baseline", ("none", "o"))
        _point(axes, (x, y), "this step", REGIME_COLOURS.get(result.regime.label, OTHER))
        axes.set_xlabel("retrieval skill (0 = chance, 1 = every reasoning names its prompt)")
        axes.set_ylabel("H(Z|X), nats/token")
        settle(figure)
    return Plot(name="quadrant", title=_TITLE, caption=_caption(result), figure=figure)


def _caption(result: Result) -> str:
    label = result.regime.label
    where = regime_words(label).title.lower() if label in REGIME_COLOURS else "no quadrant"
    return (
        f"Judged: {where}. Bars are 95 % intervals over prompts; dashed lines are the thresholds."
        " The regime is decided by all checks in the table, of which this plane shows two."
    )


def _threshold(result: Result, axis: str, metric: str) -> float | None:
    if axis not in result.regime.axes:
        return None
    deciding = result.regime.axes[axis]
    for check in (deciding, *deciding.checks):
        if check.metric == metric and check.threshold is not None:
            return check.threshold
    return None


def _baseline(baseline: Result | None) -> list[tuple[Metric, Metric]]:
    if baseline is None:
        return []
    x, y = baseline.metrics.get(_X), baseline.metrics.get(_Y)
    if x is None or y is None or x.value is None or y.value is None:
        return []
    return [(x, y)]


def _limits(
    axes: Axes, points: list[tuple[Metric, Metric]], cut_x: float | None, cut_y: float | None
) -> None:
    lows = [value for x, _ in points for value in (x.value, x.low) if value is not None]
    highs = [value for _, y in points for value in (y.value, y.high) if value is not None]
    axes.set_xlim(min(-0.06, *[low - 0.04 for low in lows], 0.0), 1.06)
    top = 1.25 * max(*highs, 0.05, 2.2 * (cut_y or 0.0))
    if cut_y and top > 6 * cut_y:
        # A threshold near the floor would leave the lower quadrants no room.
        axes.set_yscale("function", functions=(_root, np.square))
    axes.set_ylim(0.0, top)


def _root(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(np.maximum(values, 0.0)))


def _regions(axes: Axes, cuts: tuple[float, float], point: tuple[float, float]) -> None:
    (cut_x, cut_y), (x, y) = cuts, point
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    for label, ha, va in _CORNERS:
        colour, _ = REGIME_COLOURS[label]
        x0, x1 = (left, cut_x) if ha == "left" else (cut_x, right)
        y0, y1 = (bottom, cut_y) if va == "bottom" else (cut_y, top)
        axes.fill_between([x0, x1], y0, y1, color=colour, alpha=0.13, linewidth=0, zorder=0)
        edge, inset = (left, 0.018) if ha == "left" else (right, -0.018)
        upper = va == "top"
        if x0 <= x < x1 and y0 <= y < y1 and (y > (y0 + y1) / 2) == upper:
            # The point would sit on the name: it moves to the threshold's side of its region.
            upper = not upper
        axes.annotate(
            regime_words(label).title,
            (edge + inset, y1 if upper else y0),
            xytext=(0, -6 if upper else 6),
            textcoords="offset points",
            ha=ha,
            va="top" if upper else "bottom",
            fontsize=8.5,
            alpha=0.85,
        )


def _cuts(axes: Axes, cut_x: float | None, cut_y: float | None) -> None:
    line: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 3)), "alpha": 0.6}
    if cut_x is not None:
        axes.axvline(cut_x, **line)
    if cut_y is not None:
        axes.axhline(cut_y, **line)


def _arrow(axes: Axes, start: tuple[Metric, Metric], end: tuple[Metric, Metric]) -> None:
    axes.annotate(
        "",
        (_at(end[0]), _at(end[1])),
        (_at(start[0]), _at(start[1])),
        arrowprops={"arrowstyle": "->", "color": INK, "alpha": 0.45, "shrinkA": 6, "shrinkB": 8},
    )


def _point(axes: Axes, point: tuple[Metric, Metric], name: str, look: tuple[str, str]) -> None:
    x, y = _at(point[0]), _at(point[1])
    axes.errorbar(
        x,
        y,
        xerr=_bars(point[0]),
        yerr=_bars(point[1]),
        fmt=look[1],
        color=INK,
        markersize=9,
        markerfacecolor=look[0],
        markeredgecolor=INK,
        markeredgewidth=0.9,
        elinewidth=1.1,
        capsize=2.5,
        zorder=4,
    )
    # The name goes to the side with more room.
    right = x > sum(axes.get_xlim()) / 2
    axes.annotate(
        name,
        (x, y),
        xytext=(-9 if right else 9, 8),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize=8.5,
        fontweight="bold",
    )


def _at(metric: Metric) -> float:
    return math.nan if metric.value is None else metric.value


def _bars(metric: Metric) -> list[list[float]] | None:
    if metric.value is None or metric.low is None or metric.high is None:
        return None
    return [[max(0.0, metric.value - metric.low)], [max(0.0, metric.high - metric.value)]]
