"""What texts alone tell."""

import numpy as np
import pytest

from ragen_diag.metrics.garble import (
    disorder,
    mixed_script_share,
    replacement_share,
    script_mix,
)
from ragen_diag.metrics.text import (
    distinct_ratio,
    entropy_of_cap,
    find_truncation,
    normal,
    repeated_share,
    repetition,
    top1_share,
    used_vocabulary,
)
from ragen_diag.metrics.uncertainty import bootstrap


def test_top1_share_ignores_white_space_and_row_order() -> None:
    texts = ["okay carefully .", "okay  carefully .\n", "just go", "just go", "hmm"]
    own_R = np.array([0, 0, 1, 1, 2])
    metric = top1_share(texts, bootstrap(own_R))
    assert (metric.value, metric.n) == (0.4, 5)
    back = top1_share(texts[::-1], bootstrap(own_R[::-1]))
    assert (metric.low, metric.high) == (back.low, back.high)
    assert top1_share([]).value is None


def test_distinct_ratio_exact_and_normalised() -> None:
    texts = ["same"] * 4 + ["same ", "same\n", " same", "same  "]
    assert distinct_ratio(texts).value == 5 / 8
    assert distinct_ratio([normal(text) for text in texts]).value == 1 / 8
    assert distinct_ratio([]).reason == "no texts"


def test_repetition_counts_four_grams_seen_before() -> None:
    # "a b" six times, 12 tokens: 9 four-grams, two distinct ones.
    assert repeated_share([1, 2] * 6) == pytest.approx(7 / 9)
    assert repeated_share([1, 2, 3]) is None
    metric = repetition([[1, 2] * 6, [1, 2, 3, 4, 5], [1]])
    assert (metric.value, metric.n) == (pytest.approx(7 / 18), 2)
    assert repetition([[1]]).value is None


def test_garble() -> None:
    assert used_vocabulary([[1, 2], [2, 3], []]) == 3
    # 4.38 nats of log 100 = 4.605: the word salad run.
    assert entropy_of_cap(4.38, 100) == pytest.approx(0.951, abs=1e-3)
    assert entropy_of_cap(0.0, 1) is None
    assert replacement_share(["ab\ufffd\ufffd", "abcd"]) == 0.25
    assert replacement_share([""]) == 0.0


def test_script_mix() -> None:
    assert script_mix(["plain words, 3 numbers", "простые слова"]) == 0.0
    assert script_mix(["漢字とカタカナ"]) == 0.0
    # abc is Latin, three Cyrillic letters, one Arabic: 4 of 7 outside the commonest.
    assert script_mix(["abcшждع"]) == pytest.approx(4 / 7)
    assert script_mix(["123"]) == 0.0


def test_mixed_scripts_need_three() -> None:
    # 4 Latin, 3 Cyrillic, 3 Greek of 10: no script has half. 5 and 5: one has.
    assert mixed_script_share(["abcd шжд ωφψ"]) == 1.0
    assert mixed_script_share(["abcde шждяю"]) == 0.0
    # Fewer than ten letters are in no script.
    assert mixed_script_share(["abшжωφ", "123", ""]) == 0.0


def _drawn(alphabet: str, characters: int) -> str:
    letters = np.array(list(alphabet))
    return "".join(np.random.default_rng(1).choice(letters, characters))


def test_disorder_tells_language_from_characters_at_random() -> None:
    ranges = ((0x41, 0x7A), (0x410, 0x44F), (0x4E00, 0x5E00), (0x627, 0x64A), (0xAC00, 0xB400))
    many_scripts = "".join(chr(code) for low, high in ranges for code in range(low, high))
    latin = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ "
    for alphabet in (latin, many_scripts):
        assert disorder([_drawn(alphabet, 2000)]) == pytest.approx(1.0, abs=0.03)
    docstrings = [text for module in (np, np.linalg, pytest) if (text := module.__doc__)]
    english = " ".join(docstrings)
    assert len(english) > 2000 and disorder([english]) < 0.75
    # Words in random order are order still: their garble is for the entropy to tell.
    words = np.random.default_rng(2).permutation(english.split())
    assert disorder(list(words)) < 0.85


def test_disorder_of_too_little_is_undefined() -> None:
    assert disorder([]) is None
    assert disorder([_drawn("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ ", 1999)]) is None
    # Moves have no order, and are no garble.
    assert disorder([_drawn("UDLR", 5000)]) is None


def test_disorder_of_what_is_no_utf8() -> None:
    assert disorder([_drawn("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ \ud800", 3000)]) is not None


def test_truncation_by_finish_reason() -> None:
    found = find_truncation(["length", "stop", "unknown", None], [9, 9, 9, 9], ["a", "b", "c", "d"])
    assert found.truncated_N.tolist() == [True, False, False, False]
    assert (found.share.value, found.share_at_longest) == (0.25, 1.0)
    unknown = find_truncation(["length", "stop"], [0, 0], ["a", "b"])
    assert unknown.share_at_longest is None


def test_truncation_by_pile_up() -> None:
    # 15 of 16 responses of 256 tokens and one of 40, nothing said of how they ended.
    texts = [f"text {row}" for row in range(16)]
    found = find_truncation(["unknown"] * 16, [256] * 15 + [40], texts)
    assert found.share.value == 15 / 16
    assert "finish reasons are unknown" in found.how


@pytest.mark.parametrize(
    ("texts", "closed_N"),
    [
        (["okay carefully ."] * 3, None),  # one constant text is no cap
        (["a b c", "d e f", "g h i"], [True, True, True]),  # all finished thinking
        (["a b c", "d e f", "g h i"], [True, True, False]),  # the longest text is alone
    ],
)
def test_equal_lengths_that_are_no_truncation(
    texts: list[str], closed_N: list[bool] | None
) -> None:
    found = find_truncation([None] * 3, [3, 3, 3], texts, closed_N=closed_N)
    assert found.share.value == 0.0


def test_truncation_of_nothing() -> None:
    assert find_truncation([], [], []).share.value is None
