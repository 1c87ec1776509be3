"""`report.html` in a real browser: alone, silent, and inside the window."""

import os
import shutil
from pathlib import Path

import pytest
from report_products import PRODUCTS

from ragen_diag.report.html import render_html
from ragen_diag.report.plots import draw_plots

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Chromium must not call home, and CI runs as root.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def give_up(why: str) -> None:
    if os.environ.get("RAGEN_DIAG_REQUIRE_BROWSER") == "1":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        give_up("chromium is not installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        give_up("playwright is not installed")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PRODUCTS.items():
        html = render_html(make(), draw_plots(make()))
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in PRODUCTS}


class Visit:
    """A page opened in a window, and what the browser had to say about it."""

    def __init__(self, browser, path: Path, *, width: int, scheme: str = "light"):
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append("a dialog opened"))
        self.page.goto(path.as_uri())
        self.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")

    def style(self, selector: str, name: str) -> str:
        script = "([s, n]) => getComputedStyle(document.querySelector(s))[n]"
        return self.page.evaluate(script, [selector, name])


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
    outside = visit.page.evaluate(
        """() => [...document.querySelectorAll('svg.plot')].flatMap(svg => {
            const frame = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('text')].filter(text => {
                const box = text.getBoundingClientRect();
                return box.left < frame.left - 1 || box.right > frame.right + 1
                    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
            }).map(text => text.textContent);
        })"""
    )
    assert outside == []
    visit.page.close()
