"""Whether texts are language at all: characters that are none, mixed scripts, no order.

Comes in: reasoning texts. Goes out: shares. Works in any script; knows no tokens, no models and
no verdicts.
"""

import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

MIN_LETTERS = 10
"""A text with fewer letters is in no script."""
MIN_CHARACTERS = 2000
MIN_ALPHABET = 32
"""With fewer characters in all, or fewer different ones, the lack of order says nothing: dice
rolls and moves have none either."""
MOST_CHARACTERS = 200_000
"""Enough to see order, and compressed in a moment."""


def replacement_share(texts: Sequence[str]) -> float:
    """Share of characters that are U+FFFD, left by bytes that were no text; 0 for no characters."""
    characters = sum(len(text) for text in texts)
    return sum(text.count("\ufffd") for text in texts) / characters if characters else 0.0


def script_mix(texts: Sequence[str]) -> float:
    """Share of letters outside their own text's commonest script, mean over texts with letters.

    0 for texts in one script each. Kanji, kana and hangul count as one script.

    >>> script_mix(["left", "лево", "ле左右"])
    0.16666666666666666
    """
    shares = [
        1.0 - counted.most_common(1)[0][1] / counted.total()
        for text in texts
        if (counted := _scripts(text))
    ]
    return float(np.mean(shares)) if shares else 0.0


def mixed_script_share(texts: Sequence[str]) -> float:
    """Share of texts in which no script has half of the letters, which takes three scripts.

    Among the texts with at least 10 letters; 0 without any. Two languages in one text are no mix.

    >>> mixed_script_share(["пойди налево left left", "abcд左е右ω文عбγ字م"])
    0.5
    """
    mixed = [
        counted.most_common(1)[0][1] < counted.total() / 2
        for text in texts
        if (counted := _scripts(text)).total() >= MIN_LETTERS
    ]
    return float(np.mean(mixed)) if mixed else 0.0


def disorder(texts: Sequence[str]) -> float | None:
    """Compressed size of the texts over that of their characters in random order.

    1 where the order of characters says nothing, as in characters drawn at random; language is
    under 0.75 from 2000 characters on, whatever its script, and words in random order are as
    well. None below 2000 characters or 32 different ones. Of long batches every k-th text is
    taken.

    >>> disorder(["too short"]) is None
    True
    """
    step = -(-sum(len(text) for text in texts) // MOST_CHARACTERS) or 1
    # Lone surrogates cannot be written as UTF-8.
    text = "\n".join(texts[::step]).encode("utf-8", "replace").decode("utf-8")
    text = text[:MOST_CHARACTERS]
    if len(text) < MIN_CHARACTERS or len(set(text)) < MIN_ALPHABET:
        return None
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    shuffled = np.random.default_rng(0).permutation(codes).tobytes().decode("utf-32-le")
    return _compressed(text) / _compressed(shuffled)


def _compressed(text: str) -> int:
    return len(zlib.compress(text.encode("utf-8"), 9))


_EAST_ASIAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "KATAKANA-HIRAGANA"})


def _scripts(text: str) -> Counter[str]:
    counted: Counter[str] = Counter()
    for letter, count in Counter(text).items():
        if letter.isalpha():
            counted[_script(letter)] += count
    return counted


@lru_cache(maxsize=65536)
def _script(letter: str) -> str:
    first = unicodedata.name(letter, "UNNAMED").split(" ", 1)[0]
    return "CJK" if first in _EAST_ASIAN else first
