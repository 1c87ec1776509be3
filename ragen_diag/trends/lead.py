"""Two onsets -> which came first, and by how many steps."""

from dataclasses import dataclass

import numpy as np

from ragen_diag.trends.onset import Onset

_DRAWS = 20_000


@dataclass(frozen=True, kw_only=True)
class Lead:
    """Steps by which the first onset came before the second: median and 95 % interval.

    `probability` that it came before; one half where nothing tells them apart. All None without
    both onsets.
    """

    steps: float | None
    low: float | None
    high: float | None
    probability: float | None


def lead_time(first: Onset, second: Onset, *, seed: int = 0) -> Lead:
    """How long before the second onset the first came, negative if it came after.

    The two are taken as independent, though noise of one step may touch both series.
    """
    if not len(first.draws) or not len(second.draws):
        return Lead(steps=None, low=None, high=None, probability=None)
    generator = np.random.default_rng(seed)
    one = generator.choice(first.draws, _DRAWS)
    other = generator.choice(second.draws, _DRAWS)
    apart = other - one
    low, middle, high = np.quantile(apart, [0.025, 0.5, 0.975])
    return Lead(
        steps=float(middle),
        low=float(low),
        high=float(high),
        probability=float(np.mean(apart > 0)),
    )
