"""Whether a way of scoring is right for a model, and how exact it is: measured, not assumed.

A few pairs go through the model's own forward one by one; the same pairs through the path, twice,
and in the shape that the run gives them. Knows no files and no metrics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragen_diag.scoring.naive import token_logp
from ragen_diag.scoring.pairs import Pairs
from ragen_diag.scoring.scores import FEWEST_TOKENS, Noise

TOLERANCE = {"float64": 2e-5, "float32": 2e-5, "float16": 5e-3, "bfloat16": 5e-2}
"""Nats per token between two ways of scoring one pair. float32: rounding gives 1e-7 to 1e-5, a
wrong mask, cache or position 1e-3 to 10. The half precisions are allowed what the shape of a
batch alone changes in them (single tokens by 0.1, a row's mean by 0.01)."""

LOGITS = 2**21
"""Logits that the reference holds at a time: 8 MiB in float32. Of a longer row some tokens are
compared, from its first to its last."""

Pair = tuple[int, int]
"""Row and column."""


@dataclass(frozen=True)
class Probe:
    """A few pairs, the places of some of their tokens, and the reference's log-probs of these."""

    pairs: Pairs
    places: Mapping[Pair, NDArray[np.int64]]
    logp: Mapping[Pair, NDArray[np.float64]]
    tolerance: float

    @property
    def longest(self) -> Pair:
        """Longest row under longest prompt: past any threshold of length that the run goes past."""
        return next(iter(self.places))

    def noise(self, path: str, *seen: Mapping[Pair, NDArray[np.float64]]) -> Noise:
        """The largest difference from the reference, over the scored tokens of pairs as the path
        gave them, several times or some of them alone; NaN if one is not finite."""
        per_token, per_response = [], []
        for told in seen:
            for pair in self.places.keys() & told.keys():
                gap_T = told[pair][self.places[pair]] - self.logp[pair]
                gap = abs(float(gap_T.sum()))
                per_token.append(gap / max(len(gap_T), FEWEST_TOKENS))
                per_response.append(gap / len(gap_T) * len(told[pair]))
        return Noise(
            # Not `max`, which lets a NaN pass.
            per_token=float(np.max(per_token)),
            per_response=float(np.max(per_response)),
            pairs=len(self.places),
            tolerance=self.tolerance,
            path=path,
        )


def make_probe(
    model: Any, pairs: Pairs, *, temperature: float, dtype: str, vocab_size: int
) -> Probe:
    """Score some pairs one by one: longest row x longest prompt, median row x median prompt.

    Always the same pairs for the same lengths.
    """
    rows = _places(pairs.stop_R.tolist())
    columns = _places([len(x) for x in pairs.prompt_ids_P])
    places, logp = {}, {}
    for r, p in zip(rows, columns, strict=True):
        z = pairs.reasoning_ids_R[r]
        count = min(len(z), max(1, LOGITS // vocab_size))
        places[r, p] = np.unique(np.linspace(0, len(z) - 1, count).round().astype(np.int64))
        logp[r, p] = token_logp(
            model,
            pairs.prompt_ids_P[p],
            pairs.opening_ids_R[r],
            z,
            temperature=temperature,
            places=places[r, p].tolist(),
        )
    return Probe(pairs, places, logp, TOLERANCE[dtype])


def _places(lengths: Sequence[int]) -> list[int]:
    """Of the longest and of the median item, ties in input order."""
    order = np.argsort(lengths, kind="stable")
    return [int(order[round(share * (len(order) - 1))]) for share in (1.0, 0.5)]
