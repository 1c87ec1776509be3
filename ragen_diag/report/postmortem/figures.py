"""The figures of a post-mortem. Comes in: a `Story` or `SweepStory`. Goes out: `Plot`s.

Text in them is numbers and words of ours; names of logged scalars and of runs are cut to plain
characters, as matplotlib would take a dollar sign for mathematics.
"""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ragen_diag.postmortem.model import OnsetRecord
from ragen_diag.postmortem.watched import ENTROPY, MI, SUCCESS
from ragen_diag.report.glossary import term
from ragen_diag.report.plots.drawing import (
    GREY,
    INK,
    OTHER,
    REGIME_COLOURS,
    Plot,
    new_axes,
    settle,
    styled,
)
from ragen_diag.report.postmortem import facts
from ragen_diag.report.safetext import clip, one_line
from ragen_diag.report.story import Story, SweepStory
from ragen_diag.report.words import regime_words
from ragen_diag.timeline.extract import FLAT_SHARE, KEPT_SHARE, REWARD_STD

FloatArray = NDArray[np.float64]

SERIES = (
    MI,
    ENTROPY,
    SUCCESS,
    "reward_mean",
    REWARD_STD,
    FLAT_SHARE,
    KEPT_SHARE,
    "valid_thinking_rate",
    "response_length",
    "truncated_share",
    "top1_share",
    "distinct_ratio",
    "repetition",
    "mi_seq_estimate",
    "mi_zscore_ema",
    "rollout_logprob_spread",
)
"""What is drawn first, in this order; logged scalars follow."""
MOST_LOGGED = 12
BAD, GOOD = "#d55e00", "#0072b2"
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5f00", "#666666")


def draw_timeline(story: Story) -> Plot:
    """Regime per step above, and a row per onset: when it began, and what lies after."""
    told = story.postmortem
    onsets = facts.happened(told)
    steps = [step.step for step in told.steps]
    with styled():
        figure, axes = new_axes(7.4, 1.1 + 0.27 * (len(onsets) + 1))
        _strip(axes, story, row=len(onsets))
        for row, onset in enumerate(reversed(onsets)):
            _bar(axes, onset, row, steps[-1])
        _marks(axes, story)
        labels = [facts.label(onset.metric) for onset in reversed(onsets)]
        labels = [_plain(text) for text in labels]
        axes.set_yticks(range(len(labels) + 1), [*labels, "regime"])
        for tick, onset in zip(axes.get_yticklabels(), reversed(onsets), strict=False):
            tick.set_fontweight("bold" if onset.alarm else "normal")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-0.6, len(onsets) + 0.6)
        _step_axis(axes, steps)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("step")
        settle(figure)
    caption = (
        "Shaded: between the last step at the old level and the first that has left it; solid:"
        " after that. Alarms are bold and orange, grey rows no bad news by themselves."
        f" Regimes: {facts.regime_line(told.steps)}."
        if onsets
        else f"Nothing left its level. Regimes: {facts.regime_line(told.steps)}."
    )
    return Plot(name="timeline", title="When did what turn?", caption=caption, figure=figure)


def draw_series(story: Story) -> list[Plot]:
    """A small figure per quantity, those of `SERIES` that the run has, then logged scalars."""
    names = [name for name in SERIES if _defined(story, name)]
    names += story.timeline.logged[:MOST_LOGGED]
    return [_one_series(story, name, place) for place, name in enumerate(names)]


def draw_grid(story: Story) -> Plot:
    """The small multiples of `draw_series` in one figure, for a file."""
    names = [name for name in SERIES if _defined(story, name)]
    names += story.timeline.logged[:MOST_LOGGED]
    title = "Quantities over steps"
    if not names:
        return Plot(name="series", title=title, caption="Not drawn: nothing was measured.")
    columns = 3
    rows = -(-len(names) // columns)
    with styled():
        figure = Figure(figsize=(10.5, 2.1 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, name in zip(grid, names, strict=False):
            _curve(axes, story, name)
            axes.set_title(_plain(facts.label(name)), fontsize=9, loc="left")
        for axes in grid[len(names) :]:
            axes.set_visible(False)
        settle(figure)
    return Plot(name="series", title=title, caption="", figure=figure)


def draw_trajectory(story: Story) -> Plot:
    """The path of the run through the plane of RAGEN-2, Fig. 1."""
    title = "Path through the plane of regimes"
    x, y = story.timeline.metrics.get(MI), story.timeline.metrics.get(ENTROPY)
    points = [
        (summary, one.value, other.value)
        for summary, one, other in zip(story.postmortem.steps, x or (), y or (), strict=False)
        if one.value is not None and other.value is not None
    ]
    if len(points) < 2:
        why = "Not drawn: fewer than two steps have both axes measured."
        return Plot(name="trajectory", title=title, caption=why)
    with styled():
        figure, axes = new_axes(5.4, 4.2)
        xs = np.array([value for _, value, _ in points])
        ys = np.array([value for _, _, value in points])
        axes.plot(xs, ys, color=GREY, linewidth=1, zorder=1)
        for summary, value, other in points:
            colour, marker = REGIME_COLOURS.get(summary.regime, OTHER)
            axes.plot(value, other, marker, color=colour, markersize=6, zorder=2)
        for place in _labelled(xs, ys):
            axes.annotate(
                f"{points[place][0].step}",
                (xs[place], ys[place]),
                xytext=(5, 4),
                textcoords="offset points",
                fontsize=8,
            )
        axes.set_xlabel("retrieval skill (0 = chance)")
        axes.set_ylabel("H(Z|X) of the policy, nats/token")
        axes.set_ylim(0, max(float(ys.max()) * 1.15, 0.05))
        axes.set_xlim(min(-0.05, float(xs.min()) - 0.03), 1.05)
        settle(figure)
    caption = (
        f"From step {points[0][0].step} at ({xs[0]:.2f}, {ys[0]:.2f}) to step"
        f" {points[-1][0].step} at ({xs[-1]:.2f}, {ys[-1]:.2f}); marks are the judged regimes, and"
        f" numbers are steps. Regimes: {facts.regime_line(story.postmortem.steps)}."
    )
    return Plot(name="trajectory", title=title, caption=caption, figure=figure)


def _labelled(xs: FloatArray, ys: FloatArray) -> list[int]:
    """Points whose steps have room to be written: the ends, then each that is far from those."""
    scale = np.array([np.ptp(xs) or 1.0, np.ptp(ys) or 1.0])
    points = np.column_stack([xs, ys]) / scale
    chosen = [len(xs) - 1]
    for place in range(len(xs) - 1):
        if np.linalg.norm(points[chosen] - points[place], axis=1).min() > 0.12:
            chosen.append(place)
    return sorted(chosen)


def draw_planes(story: SweepStory) -> list[Plot]:
    """Outcome against input-dependence and against entropy, a path per run."""
    plots = []
    for plane in story.sweep.planes:
        quantity, outcome = plane.quantity, plane.outcome
        with styled():
            figure, axes = new_axes(5.4, 4.2)
            drawn = 0
            for place, (run, timeline) in enumerate(
                zip(story.sweep.runs, story.timelines, strict=True)
            ):
                path = [
                    (one.value, other.value)
                    for one, other in zip(
                        timeline.metrics.get(quantity, ()),
                        timeline.metrics.get(outcome, ()),
                        strict=False,
                    )
                    if one.value is not None and other.value is not None
                ]
                if not path:
                    continue
                drawn += 1
                xs, ys = zip(*path, strict=True)
                colour = _PALETTE[place % len(_PALETTE)]
                style = ("-", "--", ":", "-.")[(place // len(_PALETTE)) % 4]
                axes.plot(xs, ys, style, color=colour, linewidth=1, alpha=0.8)
                axes.plot(xs[0], ys[0], "o", color=colour, markersize=4, markerfacecolor="none")
                axes.plot(xs[-1], ys[-1], "o", color=colour, markersize=7, label=_plain(run.name))
            axes.set_xlabel(facts.label(quantity))
            axes.set_ylabel(facts.label(outcome))
            if drawn:
                figure.legend(loc="outside lower center", ncols=2)
            settle(figure)
        plots.append(
            Plot(
                name=f"plane_{quantity}",
                title=f"{facts.label(outcome).capitalize()} against {facts.label(quantity)}",
                caption=f"From the open to the filled mark, a path per run. {facts.plane(plane)}.",
                figure=figure,
            )
        )
    return plots


def _defined(story: Story, name: str) -> bool:
    found = story.timeline.metrics.get(name, ())
    return any(metric.value is not None for metric in found)


def _one_series(story: Story, name: str, place: int) -> Plot:
    with styled():
        figure, axes = new_axes(3.7, 1.9)
        _curve(axes, story, name)
        settle(figure)
    turned = [o for o in facts.happened(story.postmortem) if o.metric == name]
    said = "; ".join(
        f"{facts.movement(onset)}, {facts.when(onset.last_good, onset.first_bad)}"
        for onset in turned
    )
    return Plot(
        name=f"series_{place}",
        title=one_line(clip(facts.label(name), 80)),
        caption=one_line(clip(said or "No onset.", 400)),
        figure=figure,
    )


def _curve(axes: Axes, story: Story, name: str) -> None:
    series = story.timeline.series(name)
    scale = 100.0 if term(name).share else 1.0
    known = np.isfinite(series.value_S)
    for segment in np.unique(series.segment_S):
        part = (series.segment_S == segment) & known
        step_S, value_S = series.step_S[part], series.value_S[part] * scale
        low_S, high_S = series.low_S[part] * scale, series.high_S[part] * scale
        if np.isfinite(low_S).any():
            axes.fill_between(step_S, low_S, high_S, color=GOOD, alpha=0.18, linewidth=0)
        marker = "o" if len(step_S) <= 60 else ""
        axes.plot(step_S, value_S, color=GOOD, linewidth=1.2, marker=marker, markersize=3)
    for onset in facts.happened(story.postmortem):
        if onset.metric == name and onset.first_bad is not None:
            low = series.step_S[0] if onset.last_good is None else onset.last_good
            colour = BAD if onset.alarm else GREY
            axes.axvspan(low, onset.first_bad, color=colour, alpha=0.18, linewidth=0, zorder=0)
    _marks(axes, story)
    unit = next((m.unit for m in story.timeline.metrics.get(name, ()) if m.unit), "")
    axes.set_ylabel("%" if term(name).share else unit)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    if term(name).share and known.any() and np.ptp(series.value_S[known]) == 0:
        # Around a constant matplotlib would zoom in on nothing, below 0 % too.
        axes.set_ylim(-2, 102)
    _step_axis(axes, story.timeline.steps)


def _strip(axes: Axes, story: Story, *, row: int) -> None:
    """A cell per step in the colour of its regime, each reaching half-way to its neighbours."""
    steps = np.array([step.step for step in story.postmortem.steps], dtype=np.float64)
    edges = _edges(steps)
    for place, summary in enumerate(story.postmortem.steps):
        colour, _ = REGIME_COLOURS.get(summary.regime, (GREY, ""))
        axes.barh(
            row,
            edges[place + 1] - edges[place],
            left=edges[place],
            height=0.7,
            color=colour,
            edgecolor="white",
            linewidth=0.5,
        )
    for name, first, last in facts.regimes(story.postmortem.steps):
        text = regime_words(name).title.lower()
        room = (last - first) / max(1.0, steps[-1] - steps[0])
        if room > 0.013 * len(text):
            axes.text((first + last) / 2, row, text, ha="center", va="center", fontsize=7.5)


def _edges(steps: FloatArray) -> FloatArray:
    if len(steps) == 1:
        return np.array([steps[0] - 0.5, steps[0] + 0.5])
    middle = (steps[1:] + steps[:-1]) / 2
    return np.concatenate([[steps[0]], middle, [steps[-1]]])


def _bar(axes: Axes, onset: OnsetRecord, row: int, end: int) -> None:
    if onset.first_bad is None:
        return
    begin = axes.get_xlim()[0] if onset.last_good is None else onset.last_good
    colour = BAD if onset.alarm else GREY
    axes.barh(row, onset.first_bad - begin, left=begin, height=0.6, color=colour, alpha=0.35)
    axes.barh(row, end - onset.first_bad, left=onset.first_bad, height=0.6, color=colour, alpha=0.9)


def _marks(axes: Axes, story: Story) -> None:
    marks = story.postmortem.marks
    for step in marks.resumes:
        axes.axvline(step, color=INK, linewidth=0.8, linestyle="--")
    for step in marks.scorer_changes:
        axes.axvline(step, color=GREY, linewidth=0.6, linestyle=":")
    for low, high in marks.gaps:
        axes.axvspan(low, high, facecolor="none", edgecolor=GREY, hatch="///", alpha=0.3)


def _step_axis(axes: Axes, steps: Sequence[int]) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    margin = max(0.5, 0.02 * (steps[-1] - steps[0]))
    axes.set_xlim(steps[0] - margin, steps[-1] + margin)


def _plain(text: str) -> str:
    return re.sub(r"[^\x20-\x23\x25-\x7e]", "?", text)[:40]
