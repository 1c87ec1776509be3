"""A result as text of at most 100 columns."""

from collections.abc import Iterator
from typing import Any

from tests.benchmarks.scoring.plan import Peak, label
from tests.benchmarks.scoring.race import Lane
from tests.benchmarks.scoring.result import Result

NAMES = {"engine": "ours, engine", "score": "ours, score()", "no tree": "ours, no tree"}
HEAD = (
    f"{'P x R':15s} {'dtype':5s} {'':13s} {'seconds':>7s} {'GEMM GF/s':>13s} {'x roof':>6s}"
    f" {'x ours':>6s} {'tokens':>7s} {'rows':>6s} {'MB':>5s} {'error':>7s}"
)
NOTES = """\
seconds: the fastest round. GEMM: of square products before and after it. roof: 2 x parameters x
(prompt tokens + P x response tokens) at their mean rate. x ours: of the engine's seconds. tokens
and rows: through the layers and through the head. MB: peak above the weights, in a process of its
own. error: nats per token from float64 (with cosines and sines in float32), the worst of a few."""


def table(result: Result, about: dict[str, Any], notes: list[str]) -> str:
    """Where it was measured, a line per contender, and what the columns mean."""
    return "\n".join([*_title(about), "", HEAD, *_lines(result), "", NOTES, *notes])


def _title(about: dict[str, Any]) -> Iterator[str]:
    machine, versions = about["machine"], about["versions"]
    threads = f"{machine['threads']} thread" + ("s" if machine["threads"] > 1 else "")
    yield f"{machine['accelerator'] or machine['cpu']}, {threads}, Python {machine['python']}"
    yield ", ".join(f"{name} {number or '-'}" for name, number in versions.items())
    yield f"{machine['model']}, {machine['parameters'] / 1e6:.1f} million parameters"


def _lines(result: Result) -> Iterator[str]:
    shown: set[Peak] = set()
    before = None
    for lane in result.lanes:
        if before not in (None, lane.race):
            yield ""
        before = lane.race
        peak = Peak(lane.race.size, lane.race.dtype, lane.contender)
        shown.add(peak)
        yield _line(lane, result.over(lane), result.peaks.get(peak))
    rest = [(one, mb) for one, mb in result.peaks.items() if one not in shown]
    if rest:
        yield ""
    for one, mb in rest:
        start = f"{label(one.size):15s} {one.dtype:5s} {_name(one.contender):13s}"
        yield f"{start}{mb:{len(HEAD) - len(start) - 8}.0f}"


def _line(lane: Lane, over: float | None, mb: float | None) -> str:
    best = lane.best
    rates = f"{best.before / 1e9:.1f} {best.after / 1e9:.1f}"
    return (
        f"{label(lane.race.size):15s} {lane.race.dtype:5s} {_name(lane.contender):13s}"
        f" {best.seconds:7.2f} {rates:>13s} {lane.roofs:6.2f} {_or_dash(over, '.2f'):>6s}"
        f" {lane.fed_tokens:7d} {lane.head_rows:6d} {_or_dash(mb, '.0f'):>5s}"
        f" {_or_dash(lane.error, '.0e'):>7s}"
    )


def _name(contender: str) -> str:
    return NAMES.get(contender, contender)


def _or_dash(value: float | None, style: str) -> str:
    return "-" if value is None else format(value, style)
