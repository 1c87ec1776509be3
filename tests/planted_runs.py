"""Whole runs with a known history: points as the walk would hand them over, without any model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from planted import noise

from ragen_diag.judging.findings import Finding
from ragen_diag.judging.regimes import Regime
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.reward import RewardSignal
from ragen_diag.postmortem.diagnosis import diagnose
from ragen_diag.postmortem.model import PostMortem, RunInputs
from ragen_diag.result import Counts, DumpInput, Inputs, Result, Spans
from ragen_diag.settings import RunSettings
from ragen_diag.timeline import Point, Scorer, Timeline

S = 20
STEPS = tuple(range(0, 10 * S, 10))
DUMP = DumpInput(
    paths=("rollouts",),
    dialect="verl",
    rows=256,
    sha256=None,
    step=None,
    group_source={},
    notes={},
)


def around(level: Any, sd: float, seed: int, phi: float = 0.4) -> np.ndarray:
    """A level per step with noise."""
    return np.broadcast_to(level, (S,)) + noise(np.random.default_rng(seed), S, phi, sd)


def before_after(before: float, after: float, last_good: int) -> np.ndarray:
    """One level up to a place, another from the next on."""
    return np.where(np.arange(S) <= last_good, before, after)


def calm() -> dict[str, np.ndarray]:
    """The numbers of a run in which nothing happens."""
    return {
        "retrieval_skill": around(0.8, 0.02, 1),
        "mi_seq_estimate": around(2.5, 0.06, 2),
        "conditional_entropy_est": around(0.5, 0.01, 3),
        "rollout_entropy_est": around(0.5, 0.01, 3),
        "success_rate": around(0.6, 0.02, 4),
        "reward_mean": around(0.55, 0.02, 5),
        "valid_thinking_rate": np.clip(around(0.99, 0.004, 6), 0, 1),
        "truncated_share": np.clip(around(0.02, 0.005, 7), 0, 1),
        "repetition": np.clip(around(0.03, 0.005, 8), 0, 1),
        "top1_share": np.clip(around(0.03, 0.005, 9), 0, 1),
        "distinct_ratio": np.clip(around(0.95, 0.01, 10), 0, 1),
        "response_length": around(300.0, 6.0, 11),
        "rollout_logprob_spread": around(0.01, 0.0005, 12),
        "reward_length_correlation": around(0.05, 0.02, 13),
    }


def run(
    changed: Mapping[str, np.ndarray] | None = None,
    *,
    regimes: Mapping[int, str] | None = None,
    findings: Mapping[int, Sequence[Finding]] | None = None,
    flat: Any = 0.1,
    std: Any = 0.4,
    lag: int | None = 0,
    numerical: Sequence[int] = (),
    resumes: tuple[int, ...] = (),
    history: Mapping[str, Mapping[int, float]] | None = None,
) -> Timeline:
    """A calm run but for what is changed; `regimes`, `findings` and `numerical` by place."""
    values = calm() | dict(changed or {})
    flats, stds = np.broadcast_to(flat, (S,)), np.broadcast_to(std, (S,))
    label = "diverse_reasoning"
    points = []
    for place, step in enumerate(STEPS):
        label = (regimes or {}).get(place, label)
        broken = place in numerical
        metrics = {
            name: Metric(value=float(value[place]), n=256)
            for name, value in values.items()
            if np.isfinite(value[place])
        }
        if broken:
            for name in ("retrieval_skill", "mi_seq_estimate", "conditional_entropy_est"):
                metrics.pop(name, None)
        points.append(
            Point(
                step=step,
                result=_result(
                    metrics,
                    "not_judged" if broken else label,
                    tuple((findings or {}).get(place, ())),
                    float(flats[place]),
                    float(stds[place]),
                ),
                scorer=None if broken else Scorer(path=f"step_{step}", step=step, lag=lag),
                unscored="step_x: 12 log-probabilities are not finite" if broken else None,
                numerical=broken,
                kept_share=1.0 - float(flats[place]),
            )
        )
    rows = [(s, n, v) for n, scalars in (history or {}).items() for s, v in scalars.items()]
    schema = {"step": pl.Int64, "name": pl.String, "value": pl.Float64}
    return Timeline(
        points=points, resumes=resumes, history=pl.DataFrame(rows, schema=schema, orient="row")
    )


def _result(
    metrics: Mapping[str, Metric],
    label: str,
    findings: tuple[Finding, ...],
    flat: float,
    std: float,
) -> Result:
    reward = RewardSignal(
        mean=0.5,
        pooled_var=0.2,
        between_prompt_var=0.1,
        within_prompt_var=0.1,
        in_group_reward_std=std,
        in_group_reward_var=std**2,
        flat_groups={"groups": 32, "compared": 32, "flat_share": flat, "flat_share_by_chance": 0.1},
        buckets=(),
        cv_std=0.5,
        cv_var=0.5,
        applicability="unclear",
    )
    return Result(
        inputs=Inputs(
            dump=DUMP,
            checkpoint=None,
            spans=Spans(open="<think>", close="</think>", prefilled=False, reason="", counts={}),
            scoring=None,
            settings={},
        ),
        counts=Counts(rows=256, scored_rows=256, prompts=32, groups=32, excluded={}),
        metrics=metrics,
        reward=reward,
        regime=Regime(label=label, candidates=(), axes={}),
        findings=findings,
        run={},
    )


def told(timeline: Timeline, **settings: Any) -> PostMortem:
    """The diagnosis of a planted run."""
    inputs = RunInputs(run="run", dump=DUMP, scorer="own", checkpoints=(), history=(), settings={})
    return diagnose(timeline, RunSettings(**settings), seed=0, inputs=inputs)
