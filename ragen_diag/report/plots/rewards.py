"""Reward variance of every group, sorted, with the groups that carry no signal marked."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from ragen_diag.report.numbers import plural
from ragen_diag.report.plots.drawing import BUCKET_COLOURS, GREY, Plot, new_axes, settle, styled
from ragen_diag.report.product import Product

MOST_BARS = 400
LEAST_LABELLED = 0.045
"""Share of the width below which a bucket's name would run into its neighbour's."""
BUCKETS = ("Q1", "Q2", "Q3", "Q4", "Q5", "Q6")
_TITLE = "Which groups carry a task gradient?"


@dataclass(frozen=True)
class Bar:
    """One group: its variance, and its bucket, None when it is flat."""

    variance: float
    bucket: str | None


def draw_rewards(product: Product) -> Plot:
    """Sample variance of each group's rewards, lowest first, coloured by bucket."""
    bars = _sorted_bars(product.groups)
    if not bars:
        why = "Not drawn: no group has two finite rewards."
        return Plot(name="rewards", title=_TITLE, caption=why)
    flat = sum(bar.bucket is None for bar in bars)
    shown = _thinned(bars)
    with styled():
        figure, axes = new_axes(5.4, 3.2)
        _draw_buckets(axes, shown)
        _draw_flat(axes, shown, f"{flat:,} of {len(bars):,} flat")
        axes.set_xlim(-0.8, len(shown) - 0.2)
        top = bars[-1].variance
        axes.set_ylim(0.0, 1.22 * top if top > 0 else 1.0)
        if top == 0:
            axes.set_yticks([0])
        axes.set_xticks([])
        axes.set_xlabel(f"{plural(len(bars), 'group')}, by reward variance")
        axes.set_ylabel("reward variance (reward units squared)")
        settle(figure)
    unknown = product.groups.height - len(bars)
    caption = _caption(len(bars), flat, len(shown), unknown)
    return Plot(name="rewards", title=_TITLE, caption=caption, figure=figure)


def _sorted_bars(groups: pl.DataFrame) -> list[Bar]:
    known = groups.filter(pl.col("reward_var").is_not_null())
    bars = [
        Bar(variance, bucket if bucket in BUCKETS else None)
        for variance, bucket in known.select("reward_var", "bucket").iter_rows()
    ]
    return sorted(bars, key=lambda bar: (bar.bucket is not None, bar.variance))


def _thinned(bars: list[Bar]) -> list[Bar]:
    if len(bars) <= MOST_BARS:
        return bars
    return [bars[place] for place in np.linspace(0, len(bars) - 1, MOST_BARS).astype(int)]


def _caption(groups: int, flat: int, shown: int, unknown: int) -> str:
    text = (
        f"{flat:,} of {plural(groups, 'group')} have no reward differences (crosses): their"
        " advantages are all zero. Q1 to Q6, dark to light, are sixths of the rest by"
        " variance; the gradient's"
        " bound grows with the root of the variance (RAGEN-2, Theorem H.2)."
    )
    if shown < groups:
        text += f" {shown} of them are drawn, evenly by rank."
    if unknown:
        text += f" {plural(unknown, 'group')} with fewer than two finite rewards left out."
    return text


def _draw_buckets(axes: Axes, shown: list[Bar]) -> None:
    for bucket, colour in zip(BUCKETS, BUCKET_COLOURS, strict=True):
        places = [place for place, bar in enumerate(shown) if bar.bucket == bucket]
        if not places:
            continue
        heights = [shown[place].variance for place in places]
        if len(shown) <= 80:
            axes.bar(places, heights, width=0.84, color=colour)
        else:
            edges = [side for place in places for side in (place - 0.5, place + 0.5)]
            axes.fill_between(edges, np.repeat(heights, 2), color=colour, linewidth=0)
        if len(places) < LEAST_LABELLED * len(shown):
            continue
        axes.annotate(
            bucket,
            ((places[0] + places[-1]) / 2, max(heights)),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )


def _draw_flat(axes: Axes, shown: list[Bar], name: str) -> None:
    places = [place for place, bar in enumerate(shown) if bar.bucket is None]
    if not places:
        return
    axes.plot(
        places,
        np.zeros(len(places)),
        linestyle="none",
        marker="x" if len(places) <= 120 else "|",
        markersize=4.5,
        color=GREY,
        clip_on=False,
    )
    axes.annotate(
        name,
        ((places[0] + places[-1]) / 2, 0.0),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
        fontsize=8.5,
        fontweight="bold",
    )
