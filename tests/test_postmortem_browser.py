"""`postmortem.html` and `sweep.html` in a real browser: alone, silent, readable, in the window."""

from pathlib import Path

import pytest
from browsing import OUTSIDE, Visit
from stories import STORIES, SWEEPS

pytestmark = pytest.mark.browser

PAGES = (*STORIES, *SWEEPS)

# WCAG 2: the contrast of every text with what is painted behind it.
CONTRAST = """() => {
    const rgb = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => {
        const part = [r, g, b].map(v => v / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
    };
    const behind = node => {
        for (let at = node; at; at = at.parentElement) {
            const colour = rgb(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return [255, 255, 255];
    };
    const low = [];
    const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const node = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || node.closest('svg')) continue;
        const [one, other] = [rgb(getComputedStyle(node).color), behind(node)].map(light);
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (ratio < 4.5) low.push([node.tagName, node.className, ratio.toFixed(2)].join(' '));
    }
    return [...new Set(low)];
}"""


@pytest.fixture(scope="module")
def pages(written_stories) -> dict[str, Path]:
    home = written_stories
    return {name: home / name / "postmortem.html" for name in STORIES} | {
        name: home / name / "sweep.html" for name in SWEEPS
    }


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("name", PAGES)
def test_one_request_no_complaint_no_sideways_scroll(browser, pages, name, width):
    visit = Visit(browser, pages[name], width=width)
    assert [url for url in visit.requests if not url.startswith("data:")] == [pages[name].as_uri()]
    assert visit.complaints == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width
    visit.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["template", "quiet", "sweep"])
def test_every_text_stands_out_from_its_ground(browser, pages, name, scheme):
    visit = Visit(browser, pages[name], width=1200, scheme=scheme)
    assert visit.page.evaluate(CONTRAST) == []
    visit.page.close()


@pytest.mark.parametrize("name", ["template", "sweep"])
def test_plot_texts_stay_inside_their_plot(browser, pages, name):
    visit = Visit(browser, pages[name], width=1200)
    assert visit.page.evaluate(OUTSIDE) == []
    visit.page.close()


def test_from_a_step_in_the_table_to_its_texts(browser, pages):
    visit = Visit(browser, pages["template"], width=1200)
    visit.page.click("#steps ~ div a[href='#step-70']")
    box = visit.page.locator("#step-70").bounding_box()
    assert 0 <= box["y"] < 900
    assert visit.page.locator("#step-70-group-1 pre").first.is_visible()
    visit.page.close()
