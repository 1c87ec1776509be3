"""`report.html` in a real browser: alone, silent, and inside the window."""

from pathlib import Path

import pytest
from browsing import OUTSIDE, Visit
from report_products import PRODUCTS

from ragen_diag.report.html import render_html
from ragen_diag.report.plots import draw_plots

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PRODUCTS.items():
        html = render_html(make(), draw_plots(make()))
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in PRODUCTS}


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("name", PRODUCTS)
def test_one_request_no_complaint_no_sideways_scroll(browser, pages, name, width):
    visit = Visit(browser, pages[name], width=width)
    inner = [url for url in visit.requests if not url.startswith("data:")]
    assert inner == [pages[name].as_uri()]
    assert visit.complaints == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width
    visit.page.close()


def test_dark_mode_reaches_the_plots(browser, pages):
    ink = {}
    for scheme in ("light", "dark"):
        visit = Visit(browser, pages["template"], width=1200, scheme=scheme)
        ink[scheme] = {
            "page": visit.style("body", "color"),
            "plot": visit.style("svg.plot text", "fill"),
            "paper": visit.style("body", "backgroundColor"),
        }
        assert ink[scheme]["plot"] == ink[scheme]["page"] != ink[scheme]["paper"]
        picture = visit.page.screenshot()
        assert len(picture) > 20_000
        visit.page.close()
    assert ink["light"]["paper"] != ink["dark"]["paper"]


def test_the_verdict_is_seen_without_scrolling_on_a_phone(browser, pages):
    visit = Visit(browser, pages["template"], width=360)
    box = visit.page.locator("h1").bounding_box()
    assert box["y"] + box["height"] < 300
    assert visit.page.locator("h1").inner_text() == "Template collapse"
    visit.page.close()


def test_plot_texts_stay_inside_their_plot(browser, pages):
    visit = Visit(browser, pages["template"], width=1200)
    outside = visit.page.evaluate(OUTSIDE)
    assert outside == []
    visit.page.close()
