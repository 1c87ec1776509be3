"""Texts that a run chooses stay texts: on a terminal, in Markdown, in a page and in its figures."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from stories import SPITE, STORIES, SWEEPS, hostile

from ragen_diag.report.postmortem.terminal import story_lines, sweep_lines


def text_of(path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_no_line_is_wider_than_the_terminal_or_steers_it(width, encoding):
    out = Path("out")
    said = [story_lines(make(), out, width=width, encoding=encoding) for make in STORIES.values()]
    said += [sweep_lines(make(), out, width=width, encoding=encoding) for make in SWEEPS.values()]
    for lines in said:
        for line in lines:
            # Escapes for what a terminal cannot write make a line longer.
            assert line.cell_len <= width or encoding != "utf-8"
            line.plain.encode(encoding)
            assert not any(ord(char) < 32 or ord(char) == 0x202E for char in line.plain)
            assert not line.plain.strip().startswith("::")


class Structure(HTMLParser):
    """Tags, ids, references, and whether an attribute runs code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.ids: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name == "href" and (value or "").startswith("#"):
                self.links.append(value[1:])
            if name.startswith("on"):
                self.handlers.append(name)


@pytest.mark.parametrize("name", [*STORIES, *SWEEPS])
def test_a_page_runs_nothing_and_its_anchors_lead_somewhere(written_stories, name):
    page = "sweep.html" if name in SWEEPS else "postmortem.html"
    found = Structure(text_of(written_stories / name / page))
    assert "script" not in found.tags and not found.handlers and found.tags.get("img", 0) == 0
    assert len(found.ids) == len(set(found.ids))
    assert set(found.links) <= set(found.ids)
    assert found.tags["h1"] == 1


HOSTILE_PAGES = [
    ("hostile", "template", "postmortem.html"),
    ("hostile_sweep", "sweep", "sweep.html"),
]


@pytest.mark.parametrize(("name", "like", "file"), HOSTILE_PAGES)
def test_hostile_texts_stay_texts(written_stories, name, like, file):
    page = text_of(written_stories / name / file)
    plain, spiteful = Structure(text_of(written_stories / like / file)), Structure(page)
    for tag in ("section", "h2", "table", "figure", "details", "a"):
        assert spiteful.tags.get(tag) == plain.tags.get(tag), tag
    assert "\x1b" not in page and "\u202e" not in page and "&lt;/script&gt;" in page
    for figure in (written_stories / name / "figures").iterdir():
        assert "<script" not in text_of(figure) and "\x1b" not in text_of(figure)


@pytest.mark.parametrize(("name", "like"), [pair[:2] for pair in HOSTILE_PAGES])
def test_hostile_texts_do_not_break_the_markdown(written_stories, name, like):
    summary = text_of(written_stories / name / "summary.md")
    assert "<" not in summary and "\x1b" not in summary and "\u202e" not in summary
    assert not any(line.lstrip().startswith("::") for line in summary.split("\n"))

    def columns(text: str) -> list[int]:
        """Bars that divide cells, of every row of every table."""
        rows = (line for line in text.split("\n") if line.startswith("|"))
        return [row.replace("\\|", "").count("|") for row in rows]

    tables = columns(text_of(written_stories / like / "summary.md"))
    assert tables and set(columns(summary)) == set(tables)


def test_markup_of_a_terminal_is_shown_not_obeyed():
    said = "\n".join(line.plain for line in story_lines(hostile(), Path("out")))
    assert SPITE not in said and "\x1b" not in said
    assert "[bold]x" in said and "[red]r[/red]" in said
    # The path of a log stands in a line of its own.
    assert f"1 scalar of {SPITE.partition(' [')[0]} [bold]x" in " ".join(said.split())
