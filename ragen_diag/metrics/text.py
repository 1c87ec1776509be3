"""What the texts alone tell: sameness, repetition, vocabulary, truncation.

Comes in: reasoning texts or token ids per response. Goes out: shares and counts. Knows nothing of
models, rewards or verdicts. R scored responses, N responses of the step.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.uncertainty import Bootstrap

FloatArray = NDArray[np.float64]

NGRAM = 4


def normal(text: str) -> str:
    """`text` with every run of white space as one blank and none at the ends.

    >>> normal(" go  left\\n")
    'go left'
    """
    return " ".join(text.split())


def top1_share(texts_R: Sequence[str], draws: Bootstrap | None = None) -> Metric:
    """Share of responses with the commonest text, white space normalised; 1/R..1.

    The interval resamples prompts with that text held fixed. Undefined without texts.

    >>> top1_share(["go left", "go  left\\n", "go up"]).value
    0.6666666666666666
    """
    if not texts_R:
        return Metric.undefined("no scored texts")
    normal_R = [normal(text) for text in texts_R]
    # Sorted before counting, so that equally common texts give the same interval in any order.
    commonest = Counter(sorted(normal_R)).most_common(1)[0][0]
    same_R = np.array([text == commonest for text in normal_R], dtype=np.float64)
    if draws is None:
        return Metric(value=float(same_R.mean()), n=len(texts_R))
    return draws.metric(draws.mean_over_rows(same_R))


def distinct_ratio(texts: Sequence[Hashable]) -> Metric:
    """Distinct texts over texts, 1/R..1; undefined without texts. Pass `normal` texts to let
    white space not count.

    >>> distinct_ratio(["a", "a", "b", "c"]).value
    0.75
    """
    if not texts:
        return Metric.undefined("no texts")
    return Metric(value=len(set(texts)) / len(texts), n=len(texts))


def repeated_share(token_ids: Sequence[int]) -> float | None:
    """Share of a response's 4-grams of tokens that occurred before in it, 0..1.

    None below 4 tokens. Works on ids, so in any script.

    >>> repeated_share([1, 2, 3, 4, 5]), repeated_share([7] * 7)
    (0.0, 0.75)
    """
    grams = [tuple(token_ids[i : i + NGRAM]) for i in range(len(token_ids) - NGRAM + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else None


def repetition(ids_R: Sequence[Sequence[int]]) -> Metric:
    """Mean `repeated_share` over the responses of at least 4 tokens."""
    shares = [share for ids in ids_R if (share := repeated_share(ids)) is not None]
    if not shares:
        return Metric.undefined(f"no response has {NGRAM} tokens")
    return Metric(value=float(np.mean(shares)), n=len(shares))


def used_vocabulary(ids_R: Sequence[Sequence[int]]) -> int:
    """Number of distinct tokens in the batch: log of it bounds what a batch like it can spend."""
    return len({token for ids in ids_R for token in ids})


def entropy_of_cap(entropy_per_token: float, vocabulary: int) -> float | None:
    """Entropy per token as a share of log(used vocabulary); None below two distinct tokens.

    Near 1 every token seen is as good as any other: word salad.

    >>> round(entropy_of_cap(4.38, 100), 2)
    0.95
    """
    return entropy_per_token / float(np.log(vocabulary)) if vocabulary > 1 else None


@dataclass(frozen=True)
class Truncation:
    """Which responses ended at the length cap, and how that was found.

    `share_at_longest` is the share of responses of the largest length, None where lengths are
    unknown.
    """

    truncated_N: NDArray[np.bool_]
    how: str
    share_at_longest: float | None = None

    @property
    def share(self) -> Metric:
        """Share of responses at the cap."""
        if not self.truncated_N.size:
            return Metric.undefined("no responses")
        return Metric(value=float(self.truncated_N.mean()), n=len(self.truncated_N))


def find_truncation(
    finish_reason_N: Sequence[str | None],
    n_tokens_N: Sequence[int],
    texts_N: Sequence[str],
    *,
    closed_N: Sequence[bool] | None = None,
) -> Truncation:
    """Responses that ended at the length cap.

    By `finish_reason` "length" where any row has a known one. Otherwise by a pile-up: rows of the
    largest length count when there are two different texts among them, so that one constant text
    is not taken for a cap. `closed_N` says whose reasoning was closed; such a row did not end
    inside it and does not count in the pile-up.

    `n_tokens_N` are zeros where lengths are unknown.

    >>> find_truncation(["unknown"] * 3, [8, 8, 5], ["a b", "c d", "e"]).truncated_N.tolist()
    [True, True, False]
    """
    lengths_N = np.asarray(n_tokens_N, dtype=np.int64)
    piled_N = lengths_N == lengths_N.max(initial=0)
    at_longest = float(piled_N.mean()) if lengths_N.any() else None
    if any(reason not in (None, "unknown") for reason in finish_reason_N):
        flags_N = np.array([reason == "length" for reason in finish_reason_N], dtype=np.bool_)
        return Truncation(flags_N, "finish reasons", at_longest)
    if closed_N is not None:
        piled_N &= ~np.asarray(closed_N, dtype=np.bool_)
    texts = {text for text, piled in zip(texts_N, piled_N, strict=True) if piled}
    if len(texts) < 2:
        piled_N = np.zeros(len(lengths_N), dtype=np.bool_)
    how = "pile-up at the largest length, as finish reasons are unknown"
    return Truncation(piled_N, how, at_longest)
