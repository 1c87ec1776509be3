"""The plots: what is drawn, where, and that it is the same every time."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import PatchCollection
from report_products import PRODUCTS, P, healthy, template

from ragen_diag.metrics.metric import Metric
from ragen_diag.report.plots import draw_figures, draw_plots
from ragen_diag.report.plots.crossscores import binned, mean_posterior
from ragen_diag.report.plots.drawing import INK, png_file, svg
from ragen_diag.report.plots.rewards import MOST_BARS

TESTS = Path(__file__).parent


def figure(product, name):
    return next(plot for plot in draw_figures(product) if plot.name == name)


def test_posterior_is_what_bayes_says():
    logp_RP = np.log([[0.5, 0.25, 0.25], [0.1, 0.3, 0.1], [0.2, 0.2, 0.6]]) - 700.0
    own_R = np.array([0, 0, 2])
    expected = np.array(
        [
            [(0.5 + 0.2) / 2, (0.25 + 0.6) / 2, (0.25 + 0.2) / 2],
            [np.nan] * 3,
            [0.2, 0.2, 0.6],
        ]
    )
    np.testing.assert_allclose(mean_posterior(logp_RP, own_R), expected)


def test_bins_keep_the_mass_and_the_diagonal():
    cells_PP = np.eye(130)
    cells_PP[5] = np.nan
    cells_BB = binned(cells_PP)
    assert cells_BB.shape == (64, 64)
    np.testing.assert_allclose(cells_BB, np.eye(64))
    assert binned(np.eye(64)) is not None and binned(np.eye(64)).shape == (64, 64)


def test_quadrant_shows_value_interval_and_thresholds():
    product = template()
    axes = figure(product, "quadrant").figure.axes[0]
    metrics = product.result.metrics
    (bars,) = axes.containers
    line = bars.lines[0]
    assert line.get_xdata()[0] == metrics["retrieval_skill"].value
    assert line.get_ydata()[0] == metrics["conditional_entropy_est"].value
    horizontal = bars.lines[2][0].get_segments()[0]
    np.testing.assert_allclose(
        horizontal[:, 0], [metrics["retrieval_skill"].low, metrics["retrieval_skill"].high]
    )
    cuts = [line for line in axes.lines if line.is_dashed()]
    assert cuts[0].get_xdata()[0] == 0.4 and cuts[1].get_ydata()[0] == 0.2
    names = {text.get_text() for text in axes.texts}
    assert names >= {
        "Template collapse",
        "Diverse reasoning",
        "Low-entropy collapse",
        "Compressed reasoning",
        "this step",
    }
    assert "nats/token" in axes.get_ylabel()


def test_quadrant_draws_the_baseline_beside_it():
    product = replace(template(), baseline=healthy().result)
    texts = [text.get_text() for text in figure(product, "quadrant").figure.axes[0].texts]
    assert "baseline" in texts and "this step" in texts


def test_quadrant_keeps_room_for_the_lower_half_when_entropy_runs_away():
    product = template()
    metrics = dict(product.result.metrics)
    metrics["conditional_entropy_est"] = Metric(value=4.4, low=4.3, high=4.5, unit="nats/token")
    product = replace(product, result=product.result.model_copy(update={"metrics": metrics}))
    axes = figure(product, "quadrant").figure.axes[0]
    _, cut = axes.transData.transform((0.4, 0.2))
    bottom, top = axes.get_window_extent().intervaly
    assert (cut - bottom) / (top - bottom) > 0.15


def test_crossscores_outline_every_own_column():
    product = template()
    axes = figure(product, "crossscores").figure.axes[0]
    cells = axes.images[0].get_array()
    assert cells.shape == (P, P)
    np.testing.assert_allclose(cells.sum(axis=1), 1.0)
    (squares,) = [found for found in axes.collections if isinstance(found, PatchCollection)]
    assert len(squares.get_paths()) == P


def test_crossscores_tell_health_from_collapse():
    def diagonal(product):
        cells = figure(product, "crossscores").figure.axes[0].images[0].get_array()
        return float(np.diagonal(cells).mean())

    assert diagonal(healthy()) > 0.8 and diagonal(template()) < 0.15


def test_rewards_colour_by_bucket_and_mark_flat_groups():
    axes = figure(template(), "rewards").figure.axes[0]
    assert sum(len(container) for container in axes.containers) == P - 17
    assert [len(line.get_xdata()) for line in axes.lines] == [17]
    names = [text.get_text() for text in axes.texts]
    assert names == ["Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "17 of 32 flat"]


def test_many_groups_stay_small():
    rows = 20_000
    groups = pl.DataFrame(
        {
            "group_id": [str(row) for row in range(rows)],
            "n": [8] * rows,
            "reward_mean": [0.5] * rows,
            "reward_var": np.linspace(0.01, 1.0, rows),
            "flat": [None] * rows,
            "bucket": [f"Q{row * 6 // rows + 1}" for row in range(rows)],
        }
    )
    plot = figure(replace(template(), groups=groups), "rewards")
    assert len(svg(plot.figure)) < 150_000
    assert f"{MOST_BARS} of them are drawn" in plot.caption


def test_lengths_are_stacked_by_state():
    axes = figure(template(), "lengths").figure.axes
    assert [one.get_xlabel() for one in axes] == ["reasoning, tokens", "whole response, tokens"]
    assert sum(bar.get_height() for container in axes[0].containers for bar in container) == 127
    assert sum(bar.get_height() for container in axes[1].containers for bar in container) == 128


def test_missing_columns_and_scores_give_a_reason_and_no_figure():
    product = PRODUCTS["no_checkpoint"]()
    bare = product.responses.drop("response_length", "truncated", "span")
    empty = replace(product, responses=bare, groups=product.groups.clear())
    plots = draw_figures(empty)
    assert [plot.figure for plot in plots] == [None] * 4
    assert all(plot.caption.startswith("Not drawn: ") for plot in plots)


@pytest.mark.parametrize("name", PRODUCTS)
def test_files_are_valid_svg_in_ascii(name):
    for plot in draw_plots(PRODUCTS[name]()):
        if plot.file is not None:
            ElementTree.fromstring(plot.file)
            assert plot.file.isascii() and INK.encode() not in plot.file
            assert len(plot.file) < 200_000


def test_an_inline_svg_follows_the_page_and_says_what_it_shows():
    seen: list[str] = []
    for plot in draw_plots(template()):
        root = ElementTree.fromstring(plot.inline)
        assert INK not in plot.inline and "currentColor" in plot.inline
        assert root.get("role") == "img"
        assert root[0].text == plot.title and root[1].text == plot.caption
        seen += [element.get("id") for element in root.iter() if element.get("id")]
    assert len(seen) == len(set(seen)), "ids are unique over all plots of a page"


def test_saving_twice_changes_nothing():
    for plot in draw_figures(template()):
        first = svg(plot.figure)
        assert png_file(plot.figure).startswith(b"\x89PNG")
        assert svg(plot.figure) == first


PROGRAM = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from report_products import template
from ragen_diag.report.plots import draw_plots
digest = hashlib.sha256()
for plot in draw_plots(template()):
    digest.update(plot.file + plot.inline.encode())
assert "matplotlib.pyplot" not in sys.modules
assert "torch" not in sys.modules
print(digest.hexdigest())
"""


def test_equal_bytes_in_two_processes_whatever_the_display():
    digests = set()
    for seed, backend in (("1", "TkAgg"), ("2", "agg")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "MPLBACKEND": backend}
        environment.pop("DISPLAY", None)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(TESTS)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1 and len(digests.pop()) == len(hashlib.sha256().hexdigest())
