"""Wording and number formats."""

import pytest

from ragen_diag.judging.findings import ARTEFACTS
from ragen_diag.judging.regimes import Check
from ragen_diag.metrics.metric import Metric
from ragen_diag.report import facts, words
from ragen_diag.report.glossary import TERMS, term, value_text
from ragen_diag.report.numbers import amount, interval, number
from ragen_diag.report.safetext import clip, encodable, inert, one_line, visible

LABELS = (
    "diverse_reasoning",
    "template_collapse",
    "compressed_reasoning",
    "low_entropy_collapse",
    "undetermined",
    "not_judged",
    *ARTEFACTS,
)


@pytest.mark.parametrize("label", LABELS)
def test_every_regime_has_a_title_a_meaning_and_a_next_step(label):
    found = words.regime_words(label)
    assert found.title and found.meaning.endswith(".")
    assert words.advice(found, "no such trainer")
    assert found.tone != "neutral" or label == "not_judged"
    assert (found.tone == "void") == (label in ARTEFACTS)


@pytest.mark.parametrize("section", [words.regimes, words.findings])
def test_every_sentence_is_complete_under_every_dialect(section):
    for code, found in section().items():
        for dialect in ("trl", "verl", "other"):
            for step in words.advice(found, dialect):
                assert step[0].isupper() and step[-1] in ".)", (code, step)
                assert "{" not in step and "  " not in step, (code, step)


def test_advice_names_the_trainers_own_option():
    template = words.regime_words("template_collapse")
    assert any("num_generations" in step for step in words.advice(template, "trl"))
    assert any("rollout.n)" in step for step in words.advice(template, "verl"))
    assert not any("(" in step for step in words.advice(template, "other") if "16 or" in step)


def test_unknown_codes_get_words_of_their_own():
    assert words.regime_words("melted_down").title == "Melted down"
    assert words.finding_words("").title == "Unnamed"
    assert words.reason_words("eaten_by_dog") == "eaten by dog"
    assert words.reason_words("no_prompt") == "no prompt"
    assert term("brand_new").label == "brand_new"
    assert term("retrieval_accuracy@8").label == "retrieval in best 8"
    assert term("mi_estimate_rows").label == "MI per token, by row"


@pytest.mark.parametrize(
    ("value", "against", "text"),
    [
        (0.5, [0.5], "0.500"),  # exactly at the cut: the same digits
        (0.1 + 0.2, [0.3], "0.30000000000000004"),
        (0.2996, [0.3], "0.2996"),
        (0.2999996, [0.3], "0.2999996"),
        (9.9996, [10.0], "9.9996"),
        (-0.0004, [0.0], "-0.0004"),
        (0.0, [], "0"),
        (1234567.0, [], "1.23e+06"),
        (3.466, [None], "3.466"),
    ],
)
def test_a_number_has_digits_enough_to_tell_it_from_the_threshold(value, against, text):
    assert number(value, against=against) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "100"), (0.9996, "99.96"), (0.0002, "0.02"), (0.5, "50.0")],
)
def test_a_share_is_rounded_to_none_or_all_only_if_it_is(value, text):
    assert number(value, share=True) == text


def test_undefined_is_n_a_with_the_reason():
    assert amount(None) == "n/a"
    assert value_text("mi_estimate", Metric.undefined("one prompt")) == "n/a (one prompt)"
    assert interval(0.1, None) == ""


def check(metric, value, threshold, state):
    return Check(
        metric=metric,
        value=value,
        low=None,
        high=None,
        threshold=threshold,
        source="s",
        state=state,
    )


def test_a_check_at_its_threshold_shows_why():
    just_below = facts.check_fact(check("retrieval_skill", 0.39996, 0.4, "low"), {})
    assert (just_below.value, just_below.rule, just_below.state) == (
        "0.39996",
        "low if < 0.4",
        "low",
    )
    at_cut = facts.check_fact(check("retrieval_skill", 0.4, 0.4, "high"), {})
    assert (at_cut.value, at_cut.state) == ("0.400", "high")
    commonest = facts.check_fact(check("top1_share", 0.5, 0.5, "low"), {})
    assert (commonest.value, commonest.rule) == ("50.0 %", "low if >= 50 %")


def test_terms_do_not_end_in_a_full_stop():
    assert all(not found.definition.endswith(".") for found in TERMS.values())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\u2028 \u2029", "\\u2028 \\u2029"),
        ("tab\tline\r\nend\rx", "tab\tline\nend\\x0dx"),
        ("推理 é \U0001f600", "推理 é \U0001f600"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_hidden_characters_become_visible(text, shown):
    assert visible(text) == shown


def test_one_line_has_no_terminal_sequences_and_no_line_ends():
    assert one_line("\x1b]0;title\x07a\x1b[2Jb\n\n c\x9b31m") == "ab c\\x9b31m"


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("::error::x", "\\::error::x"),
        ("   ::add-mask::x", "   \\::add-mask::x"),
        ("a ##[group]b", "a #\\#[group]b"),
        ("std::vector", "std::vector"),
    ],
)
def test_ci_commands_are_inert(line, safe):
    assert inert(line) == safe


def test_clip_counts_what_it_leaves_out():
    assert clip("x" * 100, 100) == "x" * 100
    assert clip("x" * 20_000, 120) == "x" * 120 + "... (+19,880 chars)"
    assert clip("abcdefghij", 6, tail=2) == "abcd... (+4 chars) ...ij"


def test_encodable_keeps_what_the_stream_can_write():
    assert encodable("é推", "cp1252") == "é\\u63a8"
    assert encodable("é推", "ascii") == "\\xe9\\u63a8"
    assert encodable("é推", "gbk") == "é推"
