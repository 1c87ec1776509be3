"""The verdict on a terminal."""

import io
import re
from pathlib import Path

import pytest
from report_products import HOSTILE, PRODUCTS, healthy, template
from rich.console import Console

from ragen_diag.judging.findings import Finding
from ragen_diag.report.lines import fold
from ragen_diag.report.terminal import print_verdict, verdict_lines

FOLDER = Path("ragen-diag-out/tmpl/step_00080")


def printed(result, folder=FOLDER, *, encoding="utf-8", **options) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    console = Console(file=stream, **{"width": 80, **options})
    print_verdict(result, folder, console=console)
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("name", PRODUCTS)
def test_fits_twenty_lines_of_eighty_columns(name):
    lines = printed(PRODUCTS[name]().result).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80


def test_template_collapse_reads_like_this():
    assert printed(template().result) == (
        "step 80 of step_00080.parquet (trl): 128 responses in 32 groups\n"
        "scored 127 responses under 32 prompts with step_00080, float32 on cpu\n"
        "\n"
        "  TEMPLATE COLLAPSE  Reasoning still varies, but hardly with the prompt. Neither\n"
        "                     entropy per token nor reward shows this.\n"
        "\n"
        "  input-dependence  LOW      retrieval skill 0.155 [0.097, 0.212], cut 0.4\n"
        "                             retrieval 18.1 %, chance 3.1 %\n"
        "                             MI 0.752 nats/response [0.611, 0.893], cap 3.466\n"
        "  variety           HIGH     H(Z|X) 0.443 nats/token [0.412, 0.474], cut 0.2\n"
        "  valid reasoning   99.2 % [98.4, 100] of 128 responses\n"
        "  reward variance   53.1 % of 32 groups flat, 41.2 % by chance\n"
        "                    CV of std 1.100: a variance filter likely helps\n"
        "  left out          1 no reasoning span\n"
        "  warning           17 of 32 groups have no reward differences (41 % by chance\n"
        "                    alone)\n"
        "  findings          2 notes in report.html\n"
        "\n"
        "report            ragen-diag-out/tmpl/step_00080/report.html\n"
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("name", PRODUCTS)
def test_numbers_are_never_cut(name, width):
    result = PRODUCTS[name]().result
    # Findings and the next step may give way, to be counted; the rest may not.
    kept = re.compile(r"  (?!void|warning|note|findings|next)")
    wide = "".join(filter(kept.match, printed(result, width=1000).splitlines()))
    numbers = re.compile(r"\[-?[\d.]+, -?[\d.]+\]|\d[\d,.]*(?: %)?")
    lines = printed(result, width=width).splitlines()
    found = {number for line in lines for number in numbers.findall(line)}
    assert set(numbers.findall(wide)) <= found


def test_a_long_path_is_folded_and_whole():
    folder = Path("/very/long/" + "x" * 150 + "/run [1]/推理")
    lines = printed(template().result, folder).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("report"))
    joined = "".join(line.removeprefix("report").strip() for line in lines[start:])
    assert joined.replace(" ", "") == f"{folder}/report.html".replace(" ", "")
    assert len(lines) <= 20


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "gbk", "utf-8"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_any_stream_can_write_it(name, encoding):
    text = printed(PRODUCTS[name]().result, Path("out/推理"), encoding=encoding)
    assert "report.html" in text


def test_hostile_text_is_inert():
    result = PRODUCTS["hostile"]().result
    text = printed(result, Path(f"out/{HOSTILE}"), force_terminal=True, color_system="standard")
    styled = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert "\x1b" not in styled, "only rich's own colours reach the terminal"
    assert not [char for char in styled if ord(char) < 32 and char != "\n"]
    assert "\u202e" not in text and "\u2028" not in text
    assert not [line for line in styled.splitlines() if line.lstrip().startswith("::")]
    assert "##[" not in styled


def test_markup_is_text():
    result = template().result
    finding = Finding(code="x", severity="void", message="go [left] then [/think] C:\\path\\[")
    text = printed(result.model_copy(update={"findings": (finding,)}))
    assert "go [left] then [/think] C:\\path\\[" in text


def test_the_verdict_is_words_and_not_colour_alone():
    plain = printed(healthy().result, no_color=True)
    assert "DIVERSE REASONING" in plain and "HIGH" in plain
    assert "\x1b" not in plain


def test_no_rollout_text_is_printed():
    product = template()
    text = printed(product.result)
    assert product.commonest.text not in text


def test_what_voids_the_verdict_stands_right_under_it():
    lines = printed(PRODUCTS["format_collapse"]().result).splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith("  void")]
    axes = next(place for place, line in enumerate(lines) if "input-dependence" in line)
    assert places == [places[0], places[0] + 1] and places[-1] < axes


def test_findings_that_do_not_fit_are_counted():
    result = template().result
    findings = tuple(
        Finding(code=f"code_{number}", severity="warning", message=f"observation {number}")
        for number in range(30)
    )
    text = printed(result.model_copy(update={"findings": findings}))
    shown = len(re.findall(r"observation \d+", text))
    hidden = int(re.search(r"(\d+) warnings in report", text)[1])
    assert shown + hidden == 30
    assert len(text.splitlines()) <= 20


def test_lines_are_within_any_width():
    for width in (40, 57, 80):
        lines = verdict_lines(PRODUCTS["hostile"]().result, FOLDER, width=width)
        assert max(line.cell_len for line in lines) <= width


def test_fold_counts_cells_and_keeps_a_number_with_its_sign():
    assert fold("推理推理", 4) == ["推理", "推理"]
    assert fold("share 53.1 %", 10) == ["share", "53.1 %"]
    assert fold("x [0.1, -0.2] y", 12) == ["x", "[0.1, -0.2]", "y"]
    assert fold("a" * 5000, 80)[0] == "a" * 80
