"""`summary.md`: readable by people, inert whatever the data says."""

import re

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from report_products import HOSTILE, PRODUCTS, healthy, template

from ragen_diag.judging.findings import Finding
from ragen_diag.report.markdown import escape, render_markdown
from ragen_diag.report.safetext import one_line


def tokens(markdown: str) -> list[Token]:
    """All tokens, block and inline, by an independent parser."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    blocks = parser.parse(markdown)
    return blocks + [child for block in blocks for child in block.children or []]


def reading(markdown: str) -> str:
    """What a reader sees of it."""
    shown = {"text", "text_special", "code_inline"}
    return "".join(token.content for token in tokens(markdown) if token.type in shown)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        "a|b",
        "**bold** _it_ `code` ~~x~~ $m$",
        "[click](javascript:alert(1))",
        "![x](http://evil/x.png)",
        "# heading",
        "- item",
        "1. one",
        "&lt;script&gt;",
        "see http://evil.example and www.evil.example",
        "@someone #1",
        "\\",
    ],
)
def test_escaped_text_reads_as_the_text(text):
    assert reading(escape(text)) == one_line(text).replace("##[", "#\\#[")
    assert {token.type for token in tokens(escape(text))} <= {
        "paragraph_open",
        "paragraph_close",
        "inline",
        "text",
        "text_special",
    }


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("[click](javascript:x)", "[click\\](javascript:x)"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("# heading", "\\# heading"),
        ("1. one", "1\\. one"),
        ("http://evil", "http\\://evil"),
        ("step_00080 [0.1, 0.2] -3.2", "step_00080 [0.1, 0.2] -3.2"),
    ],
)
def test_markup_is_broken_and_plain_text_left_alone(text, source):
    assert escape(text) == source


@pytest.mark.parametrize("name", PRODUCTS)
def test_tables_keep_their_columns(name):
    columns = 0
    for line in render_markdown(PRODUCTS[name]().result).splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        columns = columns or len(cells(line))
        assert len(cells(line)) == columns, line


def test_nothing_of_the_data_is_markup():
    text = render_markdown(PRODUCTS["hostile"]().result)
    assert "<" not in text and "\x1b" not in text and "\u202e" not in text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
    assert not {token.type for token in tokens(text)} & {
        "html_block",
        "html_inline",
        "link_open",
        "image",
        "em_open",
        "s_open",
        "fence",
        "code_block",
    }


def test_the_facts_are_those_of_the_terminal():
    text = reading(render_markdown(template().result))
    for fact in (
        "Template collapse",
        "0.155[0.097, 0.212]low if < 0.4",
        "0.443 nats/token[0.412, 0.474]low if < 0.2",
        "53.1 % of 32 groups flat, 41.2 % by chance",
        "1 no reasoning span",
        "Nothing was found that voids the verdict; keep in mind:",
    ):
        assert fact in text


def test_what_voids_the_verdict_comes_first():
    text = render_markdown(PRODUCTS["format_collapse"]().result)
    severities = re.findall(r"^- \*\*(\w+)\*\*", text, re.MULTILINE)
    assert severities == ["void", "void", "warning", "note"]
    assert "Nothing was found" not in text


def test_a_long_message_is_clipped_with_a_count():
    finding = Finding(code="x", severity="note", message="y" * 50_000)
    text = render_markdown(healthy().result.model_copy(update={"findings": (finding,)}))
    assert "... (+49,000 chars)" in text and len(text) < 20_000
