"""The post-mortems of the sample runs, against what their own logs and READMEs tell."""

import functools

import polars as pl
import pytest
from conftest import SAMPLE_RUNS
from small_runs import Told

from ragen_diag.pipeline.postmortem import postmortem
from ragen_diag.postmortem.model import OnsetRecord
from ragen_diag.report.story import Story
from ragen_diag.settings import RunSettings, Settings


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    home = tmp_path_factory.mktemp("stories")

    @functools.cache
    def tell(run: str, limit: int | None = None) -> Story:
        log = SAMPLE_RUNS / run / "training.csv"
        return postmortem(
            SAMPLE_RUNS / run,
            home / run,
            settings=Settings(resamples=200, limit=limit),
            run_settings=RunSettings(history=(str(log),), tokens=run == "template_collapse"),
            observer=Told(),
        )

    return tell


def log_of(run: str) -> pl.DataFrame:
    return pl.read_csv(SAMPLE_RUNS / run / "metrics.csv")


def onset(told: Story, metric: str, direction: int = -1) -> OnsetRecord:
    found = told.postmortem.onsets
    return next(o for o in found if (o.metric, o.direction) == (metric, direction))


def test_template_collapse_is_called_so_and_mi_goes_before_success(story):
    told = story("template_collapse")
    assert (told.postmortem.verdict, told.postmortem.confidence) == ("template_collapse", "clear")
    assert told.postmortem.signatures[0].code == "template_collapse"
    mi, success = onset(told, "retrieval_skill"), onset(told, "success_rate")
    # The run's log: skill 0.87 at step 0, 0.69 at step 10, 0.63 at step 20, 0.30 at step 40.
    assert mi.last_good == 0 and mi.first_bad <= 20
    # Success holds at 0.50 to 0.57 (but for one odd step) to step 80 and is 0.34 at step 90.
    assert success.last_good >= 50 and success.first_bad == 90
    assert mi.first_bad < success.last_good
    lead = next(r for r in told.postmortem.leads if r.second == "success_rate")
    assert lead.steps > 50 and lead.low > 0 and lead.probability > 0.95


def test_entropy_stays_while_mi_falls(story):
    told = story("template_collapse")
    log = log_of("template_collapse")
    found = told.timeline.series("policy_entropy")
    assert found.value_S == pytest.approx(log["entropy_per_token"].to_numpy(), abs=2e-3)
    assert not onset(told, "policy_entropy").happened
    # Within a quarter of its start at the first bad step of MI, and to step 70 but for step 60.
    start = log["entropy_per_token"][0]
    at_first_bad = log.filter(pl.col("step") == onset(told, "retrieval_skill").first_bad)
    assert abs(at_first_bad["entropy_per_token"].item() - start) < 0.25 * start
    assert found.value_S[-3:].mean() > 0.75 * start


def test_the_canned_lines_of_the_collapse_are_found_and_pairs_show_them(story):
    """Its README: four canned lines make up four fifths of all thoughts at the end."""
    told = story("template_collapse")
    end = told.postmortem.texts[-1]
    said = " | ".join(phrase.text for phrase in end.phrases)
    for line in ("okay we must be careful", "there is a safe way", "the path looks clear"):
        assert line in said
    assert all(pair.gap_after < pair.gap_before for pair in end.pairs)


def test_tokens_add_up_to_the_mi_of_their_row(story):
    told = story("template_collapse")
    for texts in told.postmortem.texts:
        gaps = {
            (step, sample.response_id): sample.gap
            for pair in texts.pairs
            for step, samples in (
                (texts.step_before, pair.before),
                (texts.step_after, pair.after),
            )
            for sample in samples
        }
        assert texts.tokens
        for record in texts.tokens:
            expected = gaps[record.step, record.response_id]
            assert sum(record.pointwise_mi) == pytest.approx(expected, abs=1e-3)
            assert len(record.tokens) == len(record.pointwise_mi)


WHOLE_OR_HALF = [pytest.param(None, marks=pytest.mark.slow), 16]
"""All 32 prompts, or half of them, which takes a quarter of the time."""


@pytest.mark.parametrize("limit", WHOLE_OR_HALF)
def test_low_entropy_collapse_is_named_as_such(story, limit):
    told = story("low_entropy_collapse", limit)
    assert (told.postmortem.verdict, told.postmortem.confidence) == (
        "low_entropy_collapse",
        "clear",
    )
    assert onset(told, "policy_entropy").happened


@pytest.mark.parametrize("limit", WHOLE_OR_HALF)
def test_format_collapse_is_dated(story, limit):
    told = story("format_collapse", limit)
    assert (told.postmortem.verdict, told.postmortem.confidence) == ("format_collapse", "clear")
    valid = log_of("format_collapse").filter(pl.col("valid") > 0.9)["step"].max()
    assert told.postmortem.signatures[0].last_good == valid


@pytest.mark.parametrize("limit", WHOLE_OR_HALF)
def test_on_the_healthy_run_nothing_happened(story, limit):
    told = story("healthy", limit)
    assert told.postmortem.verdict == "no_onset"
    assert not [o.metric for o in told.postmortem.onsets if o.alarm and o.happened]
    assert {summary.regime for summary in told.postmortem.steps} == {"diverse_reasoning"}
