"""Pages in a real browser, for the tests marked `browser`."""

import os
import shutil
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def browser():
    """Chromium; without it the tests are skipped, or fail where it is asked for."""
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


OUTSIDE = """() => [...document.querySelectorAll('svg.plot')].flatMap(svg => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < frame.left - 1 || box.right > frame.right + 1
            || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
    }).map(text => text.textContent);
})"""
"""Texts of plots that reach beyond their plot."""
