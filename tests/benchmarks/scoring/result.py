"""Everything that a run measured -> one document. Knows no model and no table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.scoring.plan import Peak, label
from tests.benchmarks.scoring.race import Lane

OURS = "engine"
"""Whose time the ratios are of. `score` also checks itself on two pairs, which the others do not
and which weighs on a few dozen pairs; its own seconds stand in the document and the table too."""


@dataclass(frozen=True)
class Result:
    """Lanes in the order they ran, and megabytes above the weights."""

    lanes: Sequence[Lane]
    peaks: dict[Peak, float]

    def lane(self, kind: str, dtype: str, contender: str) -> Lane | None:
        """The one on this kind of slice, if it ran."""
        for lane in self.lanes:
            race = lane.race
            if (race.size[0], race.dtype, lane.contender) == (kind, dtype, contender):
                return lane
        return None

    def over(self, lane: Lane | None) -> float | None:
        """How many times as long as ours it took, on the same slice."""
        if lane is None:
            return None
        own = self.lane(lane.race.size[0], lane.race.dtype, OURS)
        return None if own is None else lane.best.seconds / own.best.seconds

    def document(self) -> dict[str, Any]:
        """The figures, then what they come from; None where something did not run.

        Without a dtype in the name a figure is of float32; memory and error are the largest of ours
        in it, over all slices.
        """
        ours = [lane for lane in self.lanes if _is_ours(lane.contender, lane.race.dtype)]
        peaks = [mb for one, mb in self.peaks.items() if _is_ours(one.contender, one.dtype)]
        return {
            "roofline_ratio_fp32": self._roofs("fp32"),
            "roofline_ratio_bf16": self._roofs("bf16"),
            "naive_over_ours_short": self.over(self.lane("short", "fp32", "naive")),
            "lmeval_over_ours_short": self.over(self.lane("short", "fp32", "lm-eval")),
            "naive_over_ours_long": self.over(self.lane("long", "fp32", "naive")),
            "lmeval_over_ours_long": self.over(self.lane("long", "fp32", "lm-eval")),
            "tree_gain": self.over(self.lane("collapsed", "fp32", "no tree")),
            "peak_mb_above_weights": _most(peaks),
            "error_per_token_vs_float64": _most(lane.error for lane in ours),
            "counters": self._by_lane(_counters) | {"peak_mb": self._peaks()},
            "seconds": self._by_lane(lambda lane: [one.seconds for one in lane.rounds]),
            "gemm_gflops": self._by_lane(
                lambda lane: [[one.before / 1e9, one.after / 1e9] for one in lane.rounds]
            ),
        }

    def _roofs(self, dtype: str) -> float | None:
        lane = self.lane("short", dtype, OURS)
        return None if lane is None else lane.roofs

    def _by_lane(self, told: Callable[[Lane], Any]) -> dict[str, Any]:
        by: dict[str, Any] = {}
        for lane in self.lanes:
            dtypes = by.setdefault(label(lane.race.size), {})
            dtypes.setdefault(lane.race.dtype, {})[lane.contender] = told(lane)
        return by

    def _peaks(self) -> list[dict[str, Any]]:
        return [
            {"slice": label(one.size), "dtype": one.dtype, "contender": one.contender, "mb": mb}
            for one, mb in self.peaks.items()
        ]


def _counters(lane: Lane) -> dict[str, Any]:
    return {
        "fed_tokens": lane.fed_tokens,
        "head_rows": lane.head_rows,
        "path": lane.path,
        "roofline_ratio": lane.roofs,
        "error_per_token": lane.error,
    }


def _is_ours(contender: str, dtype: str) -> bool:
    return contender in ("engine", "score", "no tree") and dtype == "fp32"


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
