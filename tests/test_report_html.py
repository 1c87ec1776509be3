"""`report.html`: order, completeness, and that no data can be more than text."""

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from report_products import HOSTILE, PRODUCTS, healthy, template

from ragen_diag.report.html import render_html
from ragen_diag.report.plots import draw_plots
from ragen_diag.report.product import Example
from ragen_diag.report.safetext import clip, visible

VOID_ELEMENTS = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A page taken apart: elements with attributes, and the text in each kind of element."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.stack: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID_ELEMENTS:
            self.stack.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        for tag in set(self.stack):
            self.texts[tag][-1] += data

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.elements)


@cache
def drawn(name: str):
    return draw_plots(PRODUCTS[name]())


def page(name: str, product=None) -> Page:
    """The page of a product of that name, or of a variation of it with the same plots."""
    return Page(render_html(product or PRODUCTS[name](), drawn(name)))


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_page_is_well_formed_and_self_contained(name):
    found = page(name)
    assert found.stack == []
    assert found.count("h1") == found.count("main") == 1
    assert found.count("script") == found.count("iframe") == found.count("object") == 0
    for tag, attributes in found.elements:
        assert not [name for name in attributes if name.startswith("on")], tag
        for link in ("href", "src", "xlink:href"):
            value = attributes.get(link) or ""
            assert value.startswith(("data:", "#")) or not value, (tag, value)
    policy = next(a for tag, a in found.elements if tag == "meta" and "http-equiv" in a)
    assert policy["content"].startswith("default-src 'none'")


@pytest.mark.parametrize("name", PRODUCTS)
def test_tables_and_pictures_are_labelled(name):
    found = page(name)
    assert found.count("table") == found.count("caption")
    assert all("scope" in attributes for tag, attributes in found.elements if tag == "th")
    pictures = [attributes for tag, attributes in found.elements if tag == "svg"]
    assert all(a["role"] == "img" and a["aria-labelledby"] for a in pictures)
    ids = [a["id"] for _, a in found.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    assert next(a for tag, a in found.elements if tag == "html")["lang"] == "en"


def test_the_structure_does_not_depend_on_the_data():
    """Hostile texts add no element but those of the extra rows that hold them."""
    assert set(dict(page("hostile").elements)) <= set(dict(page("template").elements))


def test_hostile_texts_are_shown_as_texts():
    product = PRODUCTS["hostile"]()
    found = page("hostile")
    shown = visible(HOSTILE)
    pres = found.texts["pre"]
    assert pres.count(shown) >= 3
    assert visible(f"<think>{HOSTILE}</think>") in pres
    assert found.texts["h1"] == [visible(product.result.regime.label.capitalize())]
    everything = found.texts["html"][0]
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", everything
    )


def test_the_order_is_verdict_doubts_evidence_provenance():
    headings = page("template").texts["h2"]
    assert headings == [
        "The two axes",
        "What could void it",
        "What to do",
        "Numbers",
        "Reward signal",
        "Left out",
        "Plots",
        "Texts",
        "Settings and provenance",
    ]


def test_every_number_with_interval_threshold_and_source():
    text = " ".join(page("template").texts["main"][0].split())
    for fact in (
        "0.155 retrieval skill [0.097, 0.212]",
        "low if < 0.4: read off the paper's Fig. 5 at P = 8 (provisional)",
        "0.443 nats/token H(Z|X) [0.412, 0.474]",
        "n/aneeds a series of steps",
        "53.1 % of 32 groups flat, 41.2 % by chance",
        "26 responses to 19 prompts",
        "float32 on a CPU: bfloat16 is slow there",
        "3b1e0f" + "0" * 58,
        "no reasoning span",
        "1,234 furlongs",
    ):
        assert fact in text, fact


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_metric_of_the_result_has_a_row(name):
    result = PRODUCTS[name]().result
    cells = {cell for th in page(name).texts["th"] for cell in th.split("\n")}
    joined = "\n".join(cells)
    for name, metric in result.metrics.items():
        plain = result.metrics.get(name.removesuffix("_rows").replace("_ema", ""))
        repeats = plain is not metric and plain == metric
        assert repeats or visible(name).split("\n")[0] in joined


def test_advice_is_not_said_twice_when_a_finding_is_the_verdict():
    text = page("format_collapse").texts["main"][0]
    assert text.count("Restore the format first") == 1
    assert text.count("Bring at least 4 distinct prompts") == 1


def test_without_a_checkpoint_the_page_says_what_is_missing():
    text = page("no_checkpoint").texts["main"][0]
    assert "Not judged" in text and "Run again with --ckpt" in text
    assert "Not drawn: an axis was not measured." in text
    assert "No texts were kept" in text


def test_huge_texts_are_clipped_with_a_count():
    huge = "x" * 50_000_000
    example = Example(
        kind="least_grounded",
        response_id="r1",
        prompt=huge,
        response=huge,
        start=10,
        end=len(huge) - 10,
        column=0,
        best_column=1,
        best_prompt=huge,
        margin=-1.0,
    )
    product = replace(healthy(), examples=(example,) * 100)
    html = render_html(product, drawn("healthy"))
    assert len(html) < 1_000_000
    assert "(+49,996,980 chars)" in html


def test_budget_holds_with_the_worst_texts():
    worst = "\u202e&" * 100_000
    example = replace(
        template().examples[1], prompt=worst, response=worst, best_prompt=worst, start=0, end=9_999
    )
    product = replace(template(), examples=(example,) * 100)
    html = render_html(product, drawn("template"))
    assert len(html.encode()) < 5_000_000


def test_a_prompt_keeps_its_end():
    prompt = "a" * 10_000 + "THE QUESTION"
    product = replace(template(), examples=(replace(template().examples[0], prompt=prompt),))
    assert "THE QUESTION" in render_html(product)
    assert "THE QUESTION" not in clip(prompt, 3000)


def test_the_page_is_a_function_of_the_product():
    product = template()
    assert render_html(product, draw_plots(product)) == render_html(product, draw_plots(template()))


def test_plots_are_optional():
    found = Page(render_html(template()))
    assert found.count("svg") == 0 and found.count("figure") == 0


def test_no_template_marks_data_as_safe():
    for path in files("ragen_diag.report").iterdir():
        if path.name.endswith((".j2", ".css")):
            text = path.read_text(encoding="utf-8")
            assert "|safe" not in text.replace(" ", "") and "autoescape" not in text
            assert "http://" not in text and "https://" not in text


def test_null_evidence_is_not_shown():
    result = template().result
    finding = replace(result.findings[0], evidence={"here": 1, "absent": None, "yes": True})
    product = replace(template(), result=result.model_copy(update={"findings": (finding,)}))
    names = page("template", product).texts["dt"]
    assert "here" in names and "absent" not in names
    assert json.loads(product.result.to_json())["findings"][0]["evidence"]["absent"] is None
