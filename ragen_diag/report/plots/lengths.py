"""Lengths: of the scored reasoning, and of whole responses by the state of their reasoning."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ragen_diag.report.numbers import plural
from ragen_diag.report.plots.drawing import GREY, OTHER, Plot, settle, styled
from ragen_diag.report.product import Product

Lengths = NDArray[np.int64]

MOST_BINS = 40
_TITLE = "How long are they?"
_LOOKS: Mapping[str, tuple[str, str]] = {
    "valid": (OTHER[0], ""),
    "valid, at the length cap": ("#56b4e9", "////"),
    "unclosed": ("#d55e00", "\\\\\\\\"),
    "missing": ("#e69f00", "----"),
    "empty": ("#cc79a7", "||||"),
}


def draw_lengths(product: Product) -> Plot:
    """Histograms of reasoning tokens and, where known, of response lengths by span state."""
    responses = product.responses
    reasoning = _reasoning(responses)
    whole = _whole(responses)
    if not reasoning and not whole:
        why = "Not drawn: no length is known without a tokenizer."
        return Plot(name="lengths", title=_TITLE, caption=why)
    panels = [
        (values, label)
        for values, label in (
            (reasoning, "reasoning, tokens"),
            (whole, "whole response, tokens"),
        )
        if values
    ]
    with styled():
        figure = Figure(figsize=(5.4, 3.0 if len(panels) == 1 else 3.4), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (values, label) in zip(grid, panels, strict=True):
            _histogram(axes, values)
            axes.set_xlabel(label)
        grid[0].set_ylabel("responses")
        _legend(figure, [values for values, _ in panels])
        settle(figure)
    return Plot(name="lengths", title=_TITLE, caption=_caption(responses), figure=figure)


def _caption(responses: pl.DataFrame) -> str:
    scored = responses.get_column("n_tokens").drop_nulls()
    rest = responses.height - len(scored)
    text = f"Reasoning lengths of {plural(len(scored), 'scored response')}."
    if not len(scored):
        text = "No response was scored."
    elif rest:
        text += f" {plural(rest, 'response')} not scored."
    if "truncated" in responses.columns:
        cut = int(responses.get_column("truncated").fill_null(False).sum())
        text += f" {plural(cut, 'response')} ended at the length cap."
    return text


def _states(responses: pl.DataFrame) -> pl.Series:
    """State of each response's reasoning, with valid ones at the cap named apart."""
    span = (
        pl.col("span").fill_null("missing")
        if "span" in responses.columns
        else pl.when(pl.col("excluded").is_null())
        .then(pl.lit("valid"))
        .otherwise(pl.lit("missing"))
    )
    cut = (
        pl.col("truncated").fill_null(False) if "truncated" in responses.columns else pl.lit(False)
    )
    state = (
        pl.when((span == "valid") & cut).then(pl.lit("valid, at the length cap")).otherwise(span)
    )
    return responses.select(state.alias("state")).get_column("state")


def _by_state(responses: pl.DataFrame, column: str) -> dict[str, Lengths]:
    table = responses.with_columns(_states(responses).alias("state")).drop_nulls(column)
    known = [*_LOOKS, *sorted(set(table.get_column("state").unique()) - set(_LOOKS))]
    parts = {
        state: table.filter(pl.col("state") == state).get_column(column).to_numpy()
        for state in known
    }
    return {state: values for state, values in parts.items() if len(values)}


def _reasoning(responses: pl.DataFrame) -> dict[str, Lengths]:
    return _by_state(responses, "n_tokens")


def _whole(responses: pl.DataFrame) -> dict[str, Lengths]:
    if "response_length" not in responses.columns:
        return {}
    return _by_state(responses, "response_length")


def _histogram(axes: Axes, values: Mapping[str, Lengths]) -> None:
    lengths = np.concatenate(list(values.values()))
    low, high = int(lengths.min()), int(lengths.max())
    width = max(1, -(-(high - low + 1) // MOST_BINS))
    edges = np.arange(low, high + width + 1, width) - 0.5
    bottom = np.zeros(len(edges) - 1)
    for state, numbers in values.items():
        counts, _ = np.histogram(numbers, bins=edges)
        colour, hatch = _LOOKS.get(state, (GREY, ""))
        axes.bar(
            edges[:-1],
            counts,
            bottom=bottom,
            width=width * 0.94,
            align="edge",
            color=colour,
            hatch=hatch,
            edgecolor="#ffffff55" if hatch else "none",
            linewidth=0,
        )
        bottom += counts
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    middle = (low + high) / 2
    axes.set_xlim(min(edges[0] - 0.5, middle - 4), max(edges[-1] + 0.5, middle + 4))


def _legend(figure: Figure, panels: list[Mapping[str, Lengths]]) -> None:
    states = list(dict.fromkeys(state for panel in panels for state in panel))
    if len(states) < 2:
        return
    patches = []
    for state in states:
        colour, hatch = _LOOKS.get(state, (GREY, ""))
        name = state if state in _LOOKS else "other"
        patches.append(
            Patch(facecolor=colour, hatch=hatch, edgecolor="#ffffff55", linewidth=0, label=name)
        )
    figure.legend(handles=patches, loc="outside upper center", ncols=min(3, len(patches)))
