"""The heat map of cross-scores: which prompts does the reasoning of each prompt point to?"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ragen_diag.report.numbers import number
from ragen_diag.report.plots.drawing import INK, Plot, new_axes, settle, styled
from ragen_diag.report.product import Product

MOST_CELLS = 64
UNSCORED = "#8a909940"
_TITLE = "Which prompt does the reasoning point to?"


def mean_posterior(logp_RP: NDArray[np.float64], own_R: NDArray[np.int64]) -> NDArray[np.float64]:
    """(P, P): row p is the mean over p's responses of p(prompt q | reasoning), uniform prior.

    Rows sum to 1; a prompt without scored responses has a row of NaN. The diagonal is what
    retrieval looks at; with no dependence on the prompt every cell is 1/P.

    >>> mean_posterior(np.log([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 1])).round(2).tolist()
    [[0.9, 0.1], [0.2, 0.8]]
    """
    weight_RP = np.exp(logp_RP - logp_RP.max(axis=1, keepdims=True))
    weight_RP /= weight_RP.sum(axis=1, keepdims=True)
    columns = logp_RP.shape[1]
    sum_PP = np.zeros((columns, columns))
    np.add.at(sum_PP, own_R, weight_RP)
    count_P = np.bincount(own_R, minlength=columns).astype(np.float64)
    count_P[count_P == 0] = np.nan
    return sum_PP / count_P[:, None]


def binned(cells_PP: NDArray[np.float64], most: int = MOST_CELLS) -> NDArray[np.float64]:
    """At most (most, most): mean over the rows and sum over the columns of runs of prompts, so
    that rows still sum to 1."""
    columns = cells_PP.shape[0]
    if columns <= most:
        return cells_PP
    parts = np.array_split(np.arange(columns), most)
    sums_PB = np.stack([cells_PP[:, part].sum(axis=1) for part in parts], axis=1)
    kept = [sums_PB[part][~np.isnan(sums_PB[part]).any(axis=1)] for part in parts]
    empty = np.full(len(parts), np.nan)
    return np.stack([rows.mean(axis=0) if len(rows) else empty for rows in kept])


def draw_crossscores(product: Product) -> Plot:
    """Mean posterior over prompts, a row per prompt."""
    scores = product.scores
    if scores is None or scores.logp_RP.shape[1] < 2 or not len(scores.own_R):
        why = "Not drawn: it needs scores of at least two prompts."
        return Plot(name="crossscores", title=_TITLE, caption=why)
    prompts = scores.logp_RP.shape[1]
    cells_BB = binned(mean_posterior(scores.logp_RP, scores.own_R))
    with styled():
        figure, axes = new_axes(5.4, 4.5)
        image = axes.imshow(
            np.ma.masked_invalid(cells_BB),
            cmap="cividis",
            norm=PowerNorm(0.5, vmin=0.0, vmax=1.0),
            interpolation="none",
            aspect="equal",
        )
        axes.set_facecolor(UNSCORED)
        _own(axes, cells_BB)
        _ticks(axes, len(cells_BB), prompts)
        _bar(figure, axes, image, len(cells_BB))
        settle(figure)
    chance = product.result.metrics["retrieval_chance_level"].value
    caption = _caption(cells_BB, prompts, chance or 1 / prompts)
    return Plot(name="crossscores", title=_TITLE, caption=caption, figure=figure)


def _caption(cells_BB: NDArray[np.float64], prompts: int, chance: float) -> str:
    """`chance` is that of one prompt, which is larger than 1/P where turns are told apart."""
    cells = len(cells_BB)
    diagonal = float(np.nanmean(np.diagonal(cells_BB)))
    chance *= prompts / cells
    text = (
        "Row: the responses of one prompt. Column: the prompt their reasoning is attributed to,"
        " as mean posterior probability; the own prompt, on the diagonal, is outlined. A bright"
        " diagonal means that reasoning tells prompts apart; even rows mean that it does not."
        f" Mean on the diagonal {number(diagonal)}, by chance {number(chance)}."
    )
    if cells < prompts:
        text += f" {prompts} prompts are shown as {cells} runs of neighbours, probabilities added."
    if np.isnan(cells_BB).any():
        text += " Grey rows have no scored response."
    return text


def _own(axes: Axes, cells_BB: NDArray[np.float64]) -> None:
    known = np.flatnonzero(~np.isnan(cells_BB).any(axis=1))
    squares = [Rectangle((index - 0.5, index - 0.5), 1, 1) for index in known]
    axes.add_collection(
        PatchCollection(squares, facecolor="none", edgecolor="#ff9d5c", linewidth=0.6)
    )


def _ticks(axes: Axes, cells: int, prompts: int) -> None:
    step = max(1, -(-cells // 8))
    places = list(range(0, cells, step))
    first = [int(part[0]) for part in np.array_split(np.arange(prompts), cells)]
    names = [str(first[place]) for place in places]
    axes.set_xticks(places, names)
    axes.set_yticks(places, names)
    axes.tick_params(length=2)
    axes.set_xlabel("attributed to prompt")
    axes.set_ylabel("responses of prompt")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _bar(figure: Figure, axes: Axes, image: AxesImage, cells: int) -> None:
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.02)
    if bar.solids is not None:
        # 256 patches as one small picture.
        bar.solids.set_rasterized(True)
    bar.ax.spines["outline"].set_visible(False)
    chance = 1 / cells
    known = [tick for tick in (0.0, 0.1, 0.25, 0.5, 1.0) if abs(tick**0.5 - chance**0.5) > 0.06]
    bar.set_ticks([*known, chance], labels=[*(f"{tick:g}" for tick in known), "chance"])
    bar.ax.axhline(chance, color=INK, linewidth=0.8)
    bar.ax.tick_params(length=2)
    bar.set_label("mean posterior probability")
