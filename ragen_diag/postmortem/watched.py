"""Which quantities are watched over steps, which way is bad, and how far counts. Data, no code.

The paper gives no numbers for any of these; they are ours unless a source is named.
"""

from dataclasses import dataclass
from typing import Literal

from ragen_diag.timeline.extract import (
    FLAT_SHARE,
    KEPT_SHARE,
    POLICY_ENTROPY,
    REWARD_STD,
)
from ragen_diag.trends.onset import Material

Direction = Literal[-1, 0, 1]

MI, MI_SEQ = "retrieval_skill", "mi_seq_estimate"
SUCCESS, REWARD, ENTROPY = "success_rate", "reward_mean", POLICY_ENTROPY
VALID, TRUNCATED, LENGTH = "valid_thinking_rate", "truncated_share", "response_length"
DISTINCT, TOP1, REPETITION = "distinct_ratio", "top1_share", "repetition"
MISMATCH = "rollout_logprob_spread"
GRAD_NORM, KL = "grad_norm", "kl"


@dataclass(frozen=True, kw_only=True)
class Watched:
    """One movement of one quantity. `alarm`: bad news by itself; otherwise a symptom that takes
    others to be one, such as shorter texts."""

    name: str
    direction: Direction
    material: Material
    alarm: bool
    source: str


_QUARTER = Material(relative=0.25, absolute=0.0)

WATCHED: tuple[Watched, ...] = (
    Watched(
        name=MI,
        direction=-1,
        material=_QUARTER,
        alarm=True,
        source="ours: a quarter of the start, half of what makes an axis low",
    ),
    Watched(
        name=MI_SEQ,
        direction=-1,
        material=_QUARTER,
        alarm=True,
        source="ours: a quarter of the start, half of what makes an axis low",
    ),
    Watched(
        name=ENTROPY,
        direction=-1,
        material=Material(relative=0.4, absolute=0.0),
        alarm=True,
        source="ours: healthy runs lose up to a tenth, fluent templates up to three tenths",
    ),
    Watched(
        name=ENTROPY,
        direction=1,
        material=Material(relative=1.0, absolute=0.2),
        alarm=True,
        source="ours: twice the start, and at least 0.2 nats/token",
    ),
    Watched(
        name=SUCCESS,
        direction=-1,
        material=Material(relative=0.15, absolute=0.05),
        alarm=True,
        source="ours: 15 % and 5 points",
    ),
    Watched(
        name=REWARD,
        direction=-1,
        material=Material(relative=0.15, absolute=0.0),
        alarm=True,
        source="ours: 15 % of the level reached",
    ),
    Watched(
        name=VALID,
        direction=-1,
        material=Material(relative=0.0, absolute=0.1),
        alarm=True,
        source="ours: 10 points, half of what voids a step",
    ),
    Watched(
        name=TRUNCATED,
        direction=1,
        material=Material(relative=0.0, absolute=0.1),
        alarm=True,
        source="ours: 10 points",
    ),
    Watched(
        name=REPETITION,
        direction=1,
        material=Material(relative=0.0, absolute=0.1),
        alarm=True,
        source="ours: 10 points",
    ),
    Watched(
        name=TOP1,
        direction=1,
        material=Material(relative=0.0, absolute=0.1),
        alarm=True,
        source="ours: 10 points",
    ),
    Watched(
        name=REWARD,
        direction=1,
        material=Material(relative=0.15, absolute=0.0),
        alarm=False,
        source="ours: 15 %",
    ),
    Watched(
        name=SUCCESS,
        direction=1,
        material=Material(relative=0.15, absolute=0.05),
        alarm=False,
        source="ours: 15 % and 5 points",
    ),
    Watched(
        name=LENGTH,
        direction=1,
        material=Material(relative=0.5, absolute=0.0),
        alarm=False,
        source="ours: half as long again",
    ),
    Watched(
        name=LENGTH,
        direction=-1,
        material=_QUARTER,
        alarm=False,
        source="ours: a quarter",
    ),
    Watched(
        name=DISTINCT,
        direction=-1,
        material=Material(relative=0.15, absolute=0.0),
        alarm=False,
        source="ours: 15 %",
    ),
    Watched(
        name=REWARD_STD,
        direction=-1,
        material=_QUARTER,
        alarm=False,
        source="ours: a quarter; the paper stops at 10 % of the start",
    ),
    Watched(
        name=FLAT_SHARE,
        direction=1,
        material=Material(relative=0.0, absolute=0.15),
        alarm=False,
        source="ours: 15 points",
    ),
    Watched(
        name=KEPT_SHARE,
        direction=-1,
        material=_QUARTER,
        alarm=False,
        source="ours: a quarter",
    ),
    Watched(
        name=MISMATCH,
        direction=1,
        material=Material(relative=0.5, absolute=0.005),
        alarm=False,
        source="ours: half as much again, and 0.005 nats/token",
    ),
)

LOGGED: tuple[tuple[tuple[str, ...], Direction, bool], ...] = (
    (("grad_norm", "gradnorm", "grad/norm"), 1, True),
    (("clip_ratio", "clipfrac", "clip_frac", "clip_fraction"), 1, True),
    (("kl",), 1, False),
    (("reward", "score"), -1, False),
    (("success", "accuracy"), -1, False),
)
"""Parts of the names of logged scalars -> the direction that is bad, and whether alone; the first
that fits. KL grows in every run that learns, from 0 on. Any other scalar is looked at in both
directions and alarms of nothing."""

LOGGED_MATERIAL = Material(relative=0.5, absolute=0.0)
LOGGED_SOURCE = "ours: half of the start"
