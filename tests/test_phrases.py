"""Phrases that came to be shared, against a naive count of every run of three to eight words."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
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
            out.append((prompt, f"{TEMPLATE} {words}" if generator.random() < share else words))
    return out


def having(count: int, prompts: int, text: str = "so I go"):
    """One response per prompt; so many of them are the text."""
    return [(n, text if n < count else f"other {n}") for n in range(prompts)]


def naive(step, phrase: str) -> tuple[float, float]:
    """Share of rows and of prompts that have these words in a row."""
    with_it = [prompt for prompt, text in step if f" {phrase} " in f" {text} "]
    return len(with_it) / len(step), len(set(with_it)) / len({prompt for prompt, _ in step})


def test_a_planted_template_is_found_whole_alone_and_with_its_shares():
    before, after = rows(0.05, seed=1), rows(0.8, seed=2)
    (phrase,) = shared_phrases(before, after)
    assert phrase.text == TEMPLATE
    assert (phrase.share_before, phrase.prompts_before) == naive(before, TEMPLATE)
    assert (phrase.share_after, phrase.prompts_after) == naive(after, TEMPLATE)


def test_the_same_habits_before_and_after_are_nothing_new():
    assert shared_phrases(rows(0.8, seed=1), rows(0.8, seed=2)) == []
    assert shared_phrases(rows(0.0, seed=1), rows(0.0, seed=2)) == []
    # Larger groups show a habit of one response in ten in more prompts.
    assert shared_phrases(rows(0.1, each=2, seed=3), rows(0.1, each=32, seed=4)) == []
    assert shared_phrases([], rows(1.0)) == shared_phrases(rows(1.0), []) == []


@pytest.mark.parametrize(
    ("before", "after", "prompts", "text", "found"),
    [
        (0, 3, 3, "so I go", False),  # 1 / comb(6, 3) = 1/20, not below 0.05
        (0, 4, 4, "so I go", True),  # 1 / comb(8, 4) = 1/70
        (0, 4, 4, "so I go up", True),  # of three phrases: 3/70 = 0.043
        (0, 4, 4, "so I go up now", False),  # of six: 6/70 = 0.086
        (1, 6, 7, "so I go", True),  # (7 x 7 + 1) / 3432 = 0.015
        (1, 5, 7, "so I go", False),  # (6 x 28 + 8) / 3432 = 0.0513; without the 8: 0.049
        (100, 130, 200, "so I go", False),  # beyond chance, but a rise of 0.15 alone
        (0, 40, 200, "so I go", True),  # a rise of just 0.2
        (0, 1, 1, "so I go", False),
    ],
)
def test_fishers_value_by_hand(before, after, prompts, text, found):
    told = shared_phrases(having(before, prompts, text), having(after, prompts, text))
    assert [phrase.text for phrase in told] == ([text] if found else [])


def test_no_phrase_is_longer_than_eight_and_none_beyond_ten_is_told():
    (one,) = shared_phrases(having(0, 20), having(20, 20, "a b c d e f g h i"))
    assert one.text == "a b c d e f g h"
    many = [(n, " ".join(f"a{k} b{k} c{k} {n}x{k}" for k in range(12))) for n in range(20)]
    told = [phrase.text for phrase in shared_phrases(having(0, 30), many)]
    assert told == [f"a{k} b{k} c{k}" for k in (0, 1, 10, 11, 2, 3, 4, 5, 6, 7)]


def test_the_largest_rise_comes_first_and_prompts_are_those_of_each_step():
    after = [(n, f"x y z {n}" + " a b c d" * (n < 16)) for n in range(20)]
    first, second = shared_phrases(having(3, 30, "a b c d"), after)
    assert (first.text, first.rise, second.text) == ("x y z", 1.0, "a b c d")
    assert (second.share_before, second.prompts_before, second.prompts_after) == (0.1, 0.1, 0.8)


def test_scripts_without_blanks_are_read_by_character():
    before = [(n, f"{n}号方块在左边") for n in range(30)]
    after = [(n, f"我们一步一步来{n}") for n in range(30)]
    (phrase,) = shared_phrases(before, after)
    assert phrase.text == "我们一步一步来"
    assert (phrase.prompts_before, phrase.prompts_after) == (0.0, 1.0)


def test_hostile_text_is_words_like_any_other():
    told = shared_phrases(having(0, 20), [(n, f"{HOSTILE} {n}") for n in range(20)])
    assert told and all(phrase.text in " ".join(HOSTILE.split()) for phrase in told)


def mixed(seed: int, share: float, each: int):
    """Twelve prompts; few words, so that they make phrases by themselves too."""
    generator = np.random.default_rng(seed)
    out = []
    for n in range(12 * each):
        planted = [p for p in ("a b a b a", "so I go left", "x y z") if generator.random() < share]
        out.append((n // each, " ".join([*generator.choice(list("abc"), 3), *planted])))
    return out


def chance(after: int, before: int) -> Fraction:
    """That `after` or more of those with the phrase are among 12 drawn one by one from 24."""
    drawn = {0: Fraction(1)}
    for n in range(12):
        hit = {k: p * Fraction(after + before - k, 24 - n) for k, p in drawn.items()}
        drawn = {k: drawn.get(k, 0) - hit.get(k, 0) + hit.get(k - 1, 0) for k in range(n + 2)}
    return sum(p for k, p in drawn.items() if k >= after)


SHARE = st.sampled_from((0.0, 0.1, 0.5, 0.9))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), SHARE, SHARE, st.integers(1, 3), st.integers(1, 3))
@example(0, 0.0, 0.9, 2, 3)
def test_phrases_are_those_of_a_naive_count(seed, share_before, share_after, few, many):
    before, after = mixed(seed, share_before, few), mixed(seed + 1, share_after, many)
    looked = [
        [row for n, row in enumerate(step) if n % each < min(few, many)]
        for step, each in ((before, few), (after, many))
    ]
    texts = [text.split() for _, text in after]
    grams = {tuple(t[i : i + n]) for t in texts for n in range(3, 9) for i in range(len(t) - n + 1)}
    counts = {gram: [round(12 * naive(s, " ".join(gram))[1]) for s in looked] for gram in grams}
    common = {gram: (b, a) for gram, (b, a) in counts.items() if a >= 0.2 * 12}
    by_chance = {gram: chance(a, b) * len(common) for gram, (b, a) in common.items()}
    risen = {g for g, (b, a) in common.items() if a - b >= 0.2 * 12 and 20 * by_chance[g] < 1}
    found = shared_phrases(before, after)
    told = set()
    for phrase in found:
        gram = tuple(phrase.text.split())
        assert gram in risen and 2 * sum(run in told for run in pairwise(gram)) < len(gram) - 1
        told.update(pairwise(gram))
        assert (phrase.prompts_before, phrase.prompts_after) == tuple(n / 12 for n in common[gram])
        assert phrase.share_before == naive(before, phrase.text)[0]
        assert phrase.share_after == naive(after, phrase.text)[0]
    for gram in risen if len(found) < 10 else ():
        assert 2 * sum(run in told for run in pairwise(gram)) >= len(gram) - 1
