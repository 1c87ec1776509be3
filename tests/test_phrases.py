"""Phrases that came to be shared, against a naive count of every run of three to eight words."""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_products import HOSTILE

from ragen_diag.postmortem.phrases import shared_phrases

TEMPLATE = "let me think about this step by"


def rows(share: float, *, prompts: int = 24, each: int = 4, seed: int = 0):
    """Random words, with the template before them in so many of the responses."""
    generator = np.random.default_rng(seed)
    out = []
    for prompt in range(prompts):
        for _ in range(each):
            words = " ".join(f"w{n}" for n in generator.integers(0, 400, 12))
            planted = generator.random() < share
            out.append((prompt, f"{TEMPLATE} {words}" if planted else words))
    return out


def naive(step, phrase: str) -> tuple[float, float]:
    """Share of rows and of prompts that have these words in a row."""
    has = [f" {phrase} " in f" {' '.join(text.split())} " for _, text in step]
    prompts = {prompt for prompt, _ in step}
    having = {prompt for (prompt, _), one in zip(step, has, strict=True) if one}
    return sum(has) / len(step), len(having) / len(prompts)


def test_a_planted_template_is_found_whole_alone_and_with_its_shares():
    before, after = rows(0.05, seed=1), rows(0.8, seed=2)
    (phrase,) = shared_phrases(before, after)
    assert phrase.text == TEMPLATE
    assert (phrase.share_before, phrase.prompts_before) == naive(before, TEMPLATE)
    assert (phrase.share_after, phrase.prompts_after) == naive(after, TEMPLATE)


def test_the_same_habits_before_and_after_are_nothing_new():
    assert shared_phrases(rows(0.8, seed=1), rows(0.8, seed=2)) == []
    assert shared_phrases(rows(0.0, seed=1), rows(0.0, seed=2)) == []


def test_few_prompts_prove_nothing():
    # Two of two prompts against none of two: one in comb(4, 2) = 6 such tables by chance.
    assert comb(4, 2) == 6
    assert shared_phrases(rows(0.0, prompts=2), rows(1.0, prompts=2)) == []
    assert shared_phrases(rows(0.0, prompts=1), rows(1.0, prompts=1)) == []
    assert shared_phrases([], rows(1.0)) == [] and shared_phrases(rows(1.0), []) == []


def test_scripts_without_blanks_are_read_by_character():
    before = [(n, f"{n}号方块在左边") for n in range(30)]
    after = [(n, f"我们一步一步来{n}") for n in range(30)]
    (phrase,) = shared_phrases(before, after)
    assert phrase.text == "我们一步一步来"
    assert (phrase.prompts_before, phrase.prompts_after) == (0.0, 1.0)


def test_larger_groups_alone_make_nothing_shared():
    """One response in ten has it in both steps; more responses show it in more prompts."""
    before, after = rows(0.1, each=2, seed=3), rows(0.1, each=32, seed=4)
    assert shared_phrases(before, after) == []


def test_hostile_text_is_words_like_any_other():
    before = [(n, f"plain {n}") for n in range(20)]
    after = [(n, f"{HOSTILE} {n}") for n in range(20)]
    for phrase in shared_phrases(before, after):
        assert phrase.text in " ".join(HOSTILE.split())


words = st.lists(st.sampled_from("abc"), min_size=0, max_size=8).map(" ".join)
steps = st.lists(st.tuples(st.integers(0, 11), words), min_size=12, max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps, steps)
def test_shares_are_those_of_a_naive_count(before, after):
    # One response per prompt, so that all of them are looked at.
    before, after = list(dict(before).items()), list(dict(after).items())
    for phrase in shared_phrases(before, after):
        assert (phrase.share_before, phrase.prompts_before) == pytest.approx(
            naive(before, phrase.text)
        )
        assert (phrase.share_after, phrase.prompts_after) == pytest.approx(
            naive(after, phrase.text)
        )
        assert phrase.rise >= 0.2 and len(phrase.text.split()) >= 3
