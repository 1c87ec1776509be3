"""Several runs side by side: where each ends in the two planes of RAGEN-2 (Fig. 1 and 8).

Comes in: post-mortems with their timelines. Goes out: a row per run, and whether success goes with
input-dependence or with entropy across the runs.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from math import factorial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragen_diag.postmortem.case import END
from ragen_diag.postmortem.model import Confidence, PostMortem
from ragen_diag.postmortem.watched import ENTROPY, MI, REWARD, SUCCESS
from ragen_diag.result import Part, Tool
from ragen_diag.timeline import Timeline
from ragen_diag.timeline.extract import KEPT_SHARE
from ragen_diag.trends.ranks import ranks

FEWEST_RUNS = 4
"""Below, no order of runs is unlikely enough to speak of (4! = 24 orders)."""
EXACT = 8
"""Up to this many runs all orders are counted, beyond them drawn."""
_DRAWS = 20_000


class End(Part):
    """First and last level of one quantity, the last over a few steps."""

    first: float | None
    last: float | None


class RunRow(Part):
    """One run in one row."""

    name: str
    verdict: str
    confidence: Confidence | None
    steps: int
    last_step: int
    mi: End
    entropy: End
    success: End
    kept_share: End
    mi_first_bad: int | None


class Plane(Part):
    """Success against another quantity, a point per run where it ends.

    `spearman` is over runs. `monotone` says whether runs with more of the quantity have more
    success without exception ("rising"), less ("falling"), or neither.
    """

    quantity: str
    outcome: str
    n: int
    spearman: float | None
    p_value: float | None
    monotone: Literal["rising", "falling", "no"] | None
    reason: str | None


class Sweep(Part):
    """Several runs."""

    schema_version: Literal[1] = 1
    tool: Tool = Tool()
    runs: tuple[RunRow, ...]
    planes: tuple[Plane, ...]

    def to_json(self) -> str:
        """The sweep as strict JSON text with a final newline."""
        return json.dumps(self.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `sweep.json`."""
    schema = Sweep.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run to compare."""

    name: str
    postmortem: PostMortem
    timeline: Timeline


def compare_runs(runs: Sequence[Run], *, seed: int) -> Sweep:
    """Put runs side by side."""
    rows = tuple(_row(run) for run in runs)
    outcome = SUCCESS if all(row.success.last is not None for row in rows) else REWARD
    planes = tuple(_plane(runs, quantity, outcome, seed) for quantity in (MI, ENTROPY))
    return Sweep(runs=rows, planes=planes)


def _row(run: Run) -> RunRow:
    story = run.postmortem
    onsets = [o for o in story.onsets if o.metric == MI and o.direction == -1 and o.happened]
    return RunRow(
        name=run.name,
        verdict=story.verdict,
        confidence=story.confidence,
        steps=len(story.steps),
        last_step=story.steps[-1].step,
        mi=_end(run.timeline, MI),
        entropy=_end(run.timeline, ENTROPY),
        success=_end(run.timeline, SUCCESS),
        kept_share=_end(run.timeline, KEPT_SHARE),
        mi_first_bad=onsets[0].first_bad if onsets else None,
    )


def _end(timeline: Timeline, name: str) -> End:
    values = [metric.value for metric in timeline.metrics.get(name, ())]
    known = [value for value in values if value is not None]
    if not known:
        return End(first=None, last=None)
    return End(first=known[0], last=float(np.mean(known[-END:])))


def _plane(runs: Sequence[Run], quantity: str, outcome: str, seed: int) -> Plane:
    points = [(_end(run.timeline, quantity).last, _end(run.timeline, outcome).last) for run in runs]
    known = np.array([pair for pair in points if None not in pair], dtype=np.float64).reshape(-1, 2)
    n = len(known)
    plane = partial(Plane, quantity=quantity, outcome=outcome, n=n)
    if n < FEWEST_RUNS:
        reason = f"{n} runs with both; {FEWEST_RUNS} are needed to speak of an order"
        return plane(spearman=None, p_value=None, monotone=None, reason=reason)
    x, y = ranks(known[:, 0]), ranks(known[:, 1])
    if not x.std() or not y.std():
        reason = "all runs end at the same level"
        return plane(spearman=None, p_value=None, monotone=None, reason=reason)
    rho = _correlation(x, y)
    steps = np.diff(known[np.argsort(known[:, 0], kind="stable"), 1])
    monotone: Literal["rising", "falling", "no"] = "no"
    if (steps >= 0).all():
        monotone = "rising"
    elif (steps <= 0).all():
        monotone = "falling"
    return plane(spearman=rho, p_value=_p_value(x, y, rho, seed), monotone=monotone, reason=None)


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / np.sqrt((x @ x) * (y @ y)))


def _p_value(x: NDArray[np.float64], y: NDArray[np.float64], rho: float, seed: int) -> float:
    """Share of the orders of runs with a rank correlation at least as strong, of either sign."""
    n = len(x)
    if n <= EXACT:
        orders = (np.array(order) for order in permutations(range(n)))
        hits = sum(abs(_correlation(x, y[order])) >= abs(rho) - 1e-12 for order in orders)
        return hits / factorial(n)
    generator = np.random.default_rng(seed)
    hits = sum(
        abs(_correlation(x, generator.permutation(y))) >= abs(rho) - 1e-12 for _ in range(_DRAWS)
    )
    return (1 + hits) / (1 + _DRAWS)
