"""Runs whose regime is known by construction, with exact likelihoods; no model is needed.

Comes in: a regime and a seed. Goes out: a `SyntheticRun`, its rollouts as a canonical table and
its cross-scores in closed form. Texts are words drawn independently at each position from a
categorical distribution that belongs to the prompt, or to all prompts alike.

R responses, P distinct prompts (columns), T positions, V words.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ragen_diag.rollouts import SCHEMA

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Quadrant = Literal[
    "diverse_reasoning", "template_collapse", "compressed_reasoning", "low_entropy_collapse"
]

WORDS = tuple(
    f"{first}{second}"
    for first in ("ba", "do", "fe", "gi", "ku", "lo", "me", "ni")
    for second in ("lar", "men", "nis", "pok", "rud", "sel", "tam", "vor")
)
LENGTHS = (11, 12, 13)
LENGTH_SHARES = (0.05, 0.9, 0.05)
"""Words per text. Mostly one length, or a constant text cut at many would be many texts."""

_RICH = (8, 0.9)
_POOR = (1, 0.995)
"""Number of favourite words at a position, and their share of the probability."""


@dataclass(frozen=True)
class SyntheticRun:
    """One step of known regime.

    `table` has the columns of `rollouts.SCHEMA`, one row per response in the order of R.
    `logp_RP` is the log-likelihood of each response's words given its length, under every prompt,
    in nats; `n_tokens_R` counts words; `true_entropy_per_token` is H(Z given X) in nats per word,
    the same for every prompt and position.
    """

    regime: Quadrant
    table: pl.DataFrame
    logp_RP: FloatArray
    n_tokens_R: IntArray
    own_R: IntArray
    true_entropy_per_token: float


def synthetic_run(
    regime: Quadrant, *, seed: int = 0, prompts: int = 16, samples: int = 8, step: int = 0
) -> SyntheticRun:
    """Draw one step of `prompts` x `samples` responses.

    High entropy: at every position 8 favourite words share 0.9 and the other 56 the rest. Low
    entropy: one word has 0.995 and the other 63 the rest. High MI: the favourites are the
    prompt's; low MI: they are the same for all, and I(X;Z) is exactly 0. Rewards are 0 or 1, at a
    rate that belongs to the prompt and has nothing to do with the text.

    >>> run = synthetic_run("template_collapse")
    >>> run.logp_RP.shape, round(run.true_entropy_per_token, 3)
    ((128, 16), 2.599)
    """
    rng = np.random.default_rng(seed)
    probability_PTV = _distributions(regime, prompts, rng)
    own_R = np.repeat(np.arange(prompts), samples)
    n_tokens_R = rng.choice(LENGTHS, size=len(own_R), p=LENGTH_SHARES).astype(np.int64)
    words_RT = _draw(probability_PTV[own_R], rng)
    any_V = probability_PTV[0, 0]
    return SyntheticRun(
        regime=regime,
        table=_table(words_RT, n_tokens_R, own_R, step, rng),
        logp_RP=_log_likelihood(probability_PTV, words_RT, n_tokens_R),
        n_tokens_R=n_tokens_R,
        own_R=own_R,
        true_entropy_per_token=float(-(any_V * np.log(any_V)).sum()),
    )


def _distributions(regime: Quadrant, prompts: int, rng: np.random.Generator) -> FloatArray:
    positions, vocabulary = max(LENGTHS), len(WORDS)
    rich = regime in ("diverse_reasoning", "template_collapse")
    favourites, favoured = _RICH if rich else _POOR
    # Every word stays possible, or a text would have log p = -inf under other prompts.
    weight_V = np.full(vocabulary, (1 - favoured) / (vocabulary - favourites))
    weight_V[:favourites] = favoured / favourites
    shared = regime in ("template_collapse", "low_entropy_collapse")
    order_PTV = rng.permuted(
        np.tile(np.arange(vocabulary), (1 if shared else prompts, positions, 1)), axis=2
    )
    probability_PTV: FloatArray = weight_V[order_PTV]
    return np.broadcast_to(probability_PTV, (prompts, positions, vocabulary))


def _draw(probability_RTV: FloatArray, rng: np.random.Generator) -> IntArray:
    cumulative_RTV = probability_RTV.cumsum(axis=2)
    uniform_RT = rng.random(probability_RTV.shape[:2]) * cumulative_RTV[:, :, -1]
    words_RT: IntArray = (cumulative_RTV > uniform_RT[:, :, None]).argmax(axis=2)
    return words_RT


def _log_likelihood(
    probability_PTV: FloatArray, words_RT: IntArray, n_tokens_R: IntArray
) -> FloatArray:
    positions_T = np.arange(words_RT.shape[1])
    logp_PRT = np.log(probability_PTV[:, positions_T[None, :], words_RT])
    logp_PRT = np.where(positions_T < n_tokens_R[:, None], logp_PRT, 0.0)
    logp_RP: FloatArray = logp_PRT.sum(axis=2).T
    return logp_RP


def _table(
    words_RT: IntArray,
    n_tokens_R: IntArray,
    own_R: IntArray,
    step: int,
    rng: np.random.Generator,
) -> pl.DataFrame:
    thoughts = [
        " ".join(WORDS[word] for word in words_T[:length])
        for words_T, length in zip(words_RT, n_tokens_R, strict=True)
    ]
    rate_P = rng.uniform(0.2, 0.8, size=int(own_R.max()) + 1)
    reward_R = (rng.random(len(own_R)) < rate_P[own_R]).astype(np.float64)
    filled = {
        "step": [step] * len(own_R),
        "group_id": [f"case-{column}" for column in own_R],
        "group_source": ["explicit"] * len(own_R),
        "sample_id": [f"sample-{row}" for row in range(len(own_R))],
        "prompt": [f"Solve case {column}. {WORDS[column % len(WORDS)]}" for column in own_R],
        "response": [f"<think> {text} </think> <answer> go </answer>" for text in thoughts],
        "reward": reward_R.tolist(),
        "finish_reason": ["stop"] * len(own_R),
        "_file": ["synthetic"] * len(own_R),
        "_row": list(range(len(own_R))),
        "_flags": [[] for _ in own_R],
    }
    empty = [None] * len(own_R)
    return pl.DataFrame({name: filled.get(name, empty) for name in SCHEMA}, schema=SCHEMA)
