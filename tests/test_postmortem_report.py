"""The reports of a post-mortem: what they say, and which files they are."""

import json
import shutil
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from stories import STORIES, SWEEPS, quiet, sweep, template

from ragen_diag.errors import UsageError
from ragen_diag.postmortem import model
from ragen_diag.postmortem import sweep as sweeps
from ragen_diag.postmortem.model import NOT_JUDGED, NOTHING, UNEXPLAINED, LeadRecord
from ragen_diag.postmortem.signatures import SIGNATURES
from ragen_diag.postmortem.watched import WATCHED
from ragen_diag.report.glossary import TERMS
from ragen_diag.report.lines import PlainConsole
from ragen_diag.report.postmortem import (
    check_postmortem_folder,
    facts,
    print_postmortem,
    write_postmortem,
)
from ragen_diag.report.postmortem.markdown import render_story, render_sweep
from ragen_diag.report.postmortem.terminal import story_lines, sweep_lines
from ragen_diag.report.words import advice, signature_words


def text_of(path) -> str:
    return path.read_text(encoding="utf-8")


def terminal(story) -> str:
    return "\n".join(line.plain for line in story_lines(story, Path("out")))


def test_every_verdict_and_every_watched_quantity_has_its_words():
    for code in (*SIGNATURES, NOTHING, UNEXPLAINED, NOT_JUDGED):
        words = signature_words(code)
        assert words.meaning and words.do and words.tone != "" and words.title, code
        for dialect in ("verl", "trl", "ragen", "slime", "skyrl", "nemo-rl", "unknown"):
            assert all("{" not in step for step in advice(words, dialect)), code
    for code in SIGNATURES:
        assert signature_words(code).confirm, code
    assert {watched.name for watched in WATCHED} <= set(TERMS)


def test_advice_names_the_options_of_the_trainer():
    words = signature_words("template_collapse")
    assert "rollout_filter_value=0.9" in advice(words, "ragen")[0]
    assert "actor_rollout_ref.actor.entropy_coeff" in advice(words, "verl")[1]
    assert "(" not in advice(words, "unknown")[1]


def test_the_terminal_tells_when_what_in_which_order_and_what_to_do():
    said = terminal(template())
    assert "TEMPLATE COLLAPSE (clear)" in said
    assert "after step 60, by step 70" in said
    assert "retrieval skill turned 8" in said and "steps before success" in said
    # Steps 70 to 190 are 121 steps of six minutes: 12.1 hours, on eight GPUs at 2.50.
    assert "121 steps since step 70: 12.10 hours, 242.00 for GPUs" in said
    assert "It would have kept" in said and "resumed at step 100" in said
    assert max(map(len, said.split("\n"))) <= 80
    calm = terminal(quiet())
    assert "NOTHING HAPPENED" in calm and "watched" in calm and "turned" not in calm


def test_printing_is_writing_the_lines(capsys):
    print_postmortem(quiet(), Path("out"), console=PlainConsole(width=80))
    assert capsys.readouterr().out.strip() == terminal(quiet()).strip()


def test_the_inputs_of_a_run_stand_on_its_page(written_stories):
    page = text_of(written_stories / "hostile" / "postmortem.html")
    # 75 steps in the log alone, and three rows of it that could not be read.
    assert "1 scalar, 20 steps in both, 75 only in the log, 0 only in the rollouts; 3 left" in page
    assert "checkpoint of step 0" in page and "log, jsonl" in page


def test_evidence_is_spoken_with_the_names_of_readers():
    said = facts.spoken("retrieval_skill fell below success_rate at template_collapse, my_metric")
    # Its own names are a run's; only those known here have others.
    assert said == "retrieval skill fell below success at template collapse, my_metric"
    for story in (template(), quiet()):
        for held in story.postmortem.signatures:
            for sentence in (*held.evidence, *held.against):
                spoken = set(facts.spoken(sentence).replace(",", "").split())
                assert not spoken & {watched.name for watched in WATCHED if "_" in watched.name}


def test_the_page_tells_it_all(written_stories):
    page = text_of(written_stories / "template" / "postmortem.html")
    order = ["verdict", 'id="timeline"', 'id="do"', 'id="signatures"', 'id="series"', 'id="path"']
    order += ['id="texts"', 'id="onsets"', 'id="correlations"', 'id="steps"', 'id="provenance"']
    places = [page.index(mark) for mark in order]
    assert places == sorted(places)
    for text in (
        "12.5 % to 87.5 %",  # the phrase's prompts
        "2.0 % to 75.0 %",  # and its responses
        "MI 2.500 to 0.250 nats/response",
        "1.110 nats over 3 tokens",
        'href="#step-70"',
        'id="step-70-group-1"',
        "kl (log)",
        "What goes with success",
    ):
        assert text in page, text
    assert '<span class="u3">' in page and '<span class="d2">' in page
    calm = text_of(written_stories / "quiet" / "postmortem.html")
    assert "Nothing happened" in calm and "fall of 25 % of its level" in calm


def test_files_are_whole(written_stories):
    folder = written_stories / "template"
    assert sorted(path.name for path in folder.iterdir()) == [
        "figures",
        "postmortem.html",
        "postmortem.json",
        "summary.md",
        "timeline.parquet",
    ]
    names = {path.name for path in (folder / "figures").iterdir()}
    assert names == {"timeline.svg", "series.svg", "trajectory.svg"}
    table = pl.read_parquet(folder / "timeline.parquet")
    assert table.columns == ["step", "metric", "value", "low", "high"]
    skill = table.filter((pl.col("metric") == "retrieval_skill") & (pl.col("step") == 70))
    assert skill["value"].item() == pytest.approx(
        template().timeline.metrics["retrieval_skill"][7].value
    )
    assert table.filter(pl.col("metric") == "history/kl").height == 95


@pytest.mark.parametrize("name", [*STORIES, *SWEEPS])
def test_json_is_strict_and_fits_its_schema(written_stories, name):
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    is_sweep = name in SWEEPS
    file = written_stories / name / ("sweep.json" if is_sweep else "postmortem.json")
    schema = (sweeps if is_sweep else model).json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    record = json.loads(text_of(file), parse_constant=refuse)
    jsonschema.validate(record, schema, cls=jsonschema.Draft202012Validator)


def test_writing_twice_gives_the_same_bytes_in_either_format(
    written_stories, tmp_path, monkeypatch
):
    write_postmortem(template(), tmp_path / "again")
    for name in ("postmortem.html", "postmortem.json", "summary.md", "figures/series.svg"):
        one, other = written_stories / "template" / name, tmp_path / "again" / name
        assert one.read_bytes() == other.read_bytes(), name
    # One quantity is enough to see the other format, and far quicker drawn.
    monkeypatch.setattr("ragen_diag.report.postmortem.figures.SERIES", ("retrieval_skill",))
    write_postmortem(quiet(), tmp_path / "again", plot_format="png")
    figures = {path.name for path in (tmp_path / "again" / "figures").iterdir()}
    assert figures == {"timeline.png", "series.png", "trajectory.png"}


def test_the_folder_of_another_run_is_refused_before_anything_is_done(written_stories, tmp_path):
    folder = tmp_path / "out"
    (folder / "steps").mkdir(parents=True)
    check_postmortem_folder(folder, "run", force=False)
    shutil.copytree(written_stories / "template", folder, dirs_exist_ok=True)
    check_postmortem_folder(folder, "run", force=False)
    with pytest.raises(UsageError, match="another run"):
        check_postmortem_folder(folder, "other", force=False)
    check_postmortem_folder(folder, "other", force=True)
    (folder / "postmortem.json").unlink()
    with pytest.raises(UsageError, match=r"no postmortem\.json"):
        check_postmortem_folder(folder, "run", force=False)
    (folder / "postmortem.json").write_text("[1]")
    with pytest.raises(UsageError, match="no post-mortem"):
        check_postmortem_folder(folder, "run", force=False)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match="not a folder"):
        check_postmortem_folder(file, "run", force=False)
    assert (folder / "steps").is_dir()


def test_a_sweep_says_whether_success_follows(written_stories):
    story = sweep()
    plane = story.sweep.planes[0]
    # Four runs in one order: of 24 orders this and its reverse are as strong, 2 / 24.
    assert (plane.spearman, plane.monotone) == (1.0, "rising")
    assert plane.p_value == pytest.approx(2 / 24)
    said = facts.plane(plane)
    assert said == (
        "Success against retrieval skill: rising without exception; Spearman +1.00 over 4 runs"
        " (p = 0.083)"
    )
    assert said in text_of(written_stories / "sweep" / "sweep.html")
    assert "rising without exception" in text_of(written_stories / "sweep" / "summary.md")
    lines = [line.plain for line in sweep_lines(story, Path("out"))]
    assert "kl_0" in lines and max(map(len, lines)) <= 80
    assert (written_stories / "sweep" / "figures" / "plane_retrieval_skill.svg").exists()
    assert "| kl_0 | " in render_sweep(story)


def test_a_lead_that_is_no_lead_is_called_so():
    def record(steps, low, high, chance):
        return LeadRecord(
            first="retrieval_skill",
            second="success_rate",
            steps=steps,
            low=low,
            high=high,
            probability=chance,
        )

    assert facts.lead(record(77, 18, 88, 0.995)) == (
        "retrieval skill turned 77 steps before success (95 %: 18 to 88; first with over 99 %)"
    )
    assert facts.lead(record(-20, -30, -10, 0.02)) == (
        "success turned 20 steps before retrieval skill (95 %: 10 to 30; first with 98 %)"
    )
    assert "too close together" in facts.lead(record(2, -8, 9, 0.6))


def test_markdown_has_the_facts():
    summary = render_story(template())
    assert "# Template collapse (clear)" in summary
    assert "**Onset** after step 60, by step 70" in summary
    rows = [line for line in summary.split("\n") if line.startswith("| retrieval skill")]
    assert rows and "after step 60, by step 70" in rows[0]
