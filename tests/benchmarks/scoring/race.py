"""Runs a `Race`: contenders in turn, matrix products timed before and after each.

Every contender's sums are compared with the exact ones, so that none is fast by being wrong.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.scoring.contenders import CONTENDERS, Outcome, counted, missing
from tests.benchmarks.scoring.exactness import Oracle, error_per_token
from tests.benchmarks.scoring.gemm import gemm_rate, wait
from tests.benchmarks.scoring.models import parameters
from tests.benchmarks.scoring.plan import Race
from tests.benchmarks.scoring.slices import Slice


@dataclass(frozen=True)
class Round:
    """One run of one contender: seconds, and FLOP/s of matrix products before and after it."""

    seconds: float
    before: float
    after: float


@dataclass
class Lane:
    """All rounds of a contender on a slice, and what does not depend on time."""

    race: Race
    contender: str
    flop: float
    """2 x parameters x `Slice.plain_tokens`."""
    rounds: list[Round] = field(default_factory=list)
    fed_tokens: int = 0
    head_rows: int = 0
    path: str | None = None
    error: float | None = None
    """Nats per token, at most, from the exact sums; None on an accelerator."""

    @property
    def best(self) -> Round:
        """The fastest round."""
        return min(self.rounds, key=lambda one: one.seconds)

    @property
    def roofs(self) -> float:
        """Seconds of the fastest round, in those that the FLOP would take at the rate of matrix
        products around that round."""
        rate = (self.best.before + self.best.after) / 2
        return self.best.seconds * rate / self.flop


def run_race(race: Race, slice_: Slice, model: Any, exact: Oracle | None) -> list[Lane]:
    """A lane for each contender that can run here."""
    flop = 2.0 * parameters(model) * slice_.plain_tokens
    able = [name for name in race.contenders if missing(name) is None]
    lanes = {name: Lane(race, name, flop) for name in able}
    for name in able:
        CONTENDERS[name](model, race.dtype, slice_.begun(8))
    for number in range(race.rounds):
        for name, lane in lanes.items():
            outcome = _round(lane, slice_, model)
            if exact is not None:
                lane.error = error_per_token(outcome, exact, slice_)
            tell(
                f"{slice_.name} {race.dtype} {name}, round {number + 1} of {race.rounds}:"
                f" {lane.rounds[-1].seconds:.1f} s"
            )
    return list(lanes.values())


def _round(lane: Lane, slice_: Slice, model: Any) -> Outcome:
    device = model.device.type
    before = gemm_rate(lane.race.dtype, device)
    with counted(model) as count:
        started = time.perf_counter()
        outcome = CONTENDERS[lane.contender](model, lane.race.dtype, slice_)
        wait(device)
        seconds = time.perf_counter() - started
    lane.rounds.append(Round(seconds, before, gemm_rate(lane.race.dtype, device)))
    lane.fed_tokens = count.fed_tokens
    lane.head_rows = count.head_rows + (outcome.head_rows or 0)
    lane.path = outcome.path
    return outcome


def tell(line: str) -> None:
    """Say what is done, on standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def not_run(races: list[Race]) -> Iterator[str]:
    """Why contenders are absent, a sentence each."""
    names = dict.fromkeys(name for race in races for name in race.contenders)
    for name in names:
        reason = missing(name)
        if reason is not None:
            yield f"{name} did not take part: {reason}"
