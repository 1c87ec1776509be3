"""`python -m tests.benchmarks.scoring`: plan, run, print."""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.scoring import __doc__ as about_all
from tests.benchmarks.scoring.exactness import oracle
from tests.benchmarks.scoring.machine import machine, versions
from tests.benchmarks.scoring.memory import peak_mb, unmeasurable
from tests.benchmarks.scoring.models import DTYPES, NAMES, RANDOM, load, parameters
from tests.benchmarks.scoring.plan import Peak, Plan, accelerator, full, label, quick
from tests.benchmarks.scoring.race import Lane, not_run, run_race, tell
from tests.benchmarks.scoring.result import Result
from tests.benchmarks.scoring.slices import cut
from tests.benchmarks.scoring.table import table


def main() -> None:
    """Print the table, or the document; what is done meanwhile goes to standard error."""
    given = _arguments()
    torch.set_num_threads(given.threads)
    plan = _plan(given)
    models = {dtype: load(dtype, given.model, given.device) for dtype in DTYPES}
    lanes = _race(plan, models)
    size = parameters(models["fp32"])
    unmeasured = unmeasurable(given.device)
    peaks = _peaks([] if unmeasured else plan.peaks, models, given)
    about: dict[str, Any] = {
        "machine": machine(given.device) | {"model": given.model, "parameters": size},
        "versions": versions(),
    }
    result = Result(lanes, peaks)
    if given.json:
        sys.stdout.write(json.dumps(result.document() | about, indent=1) + "\n")
    else:
        sys.stdout.write(
            table(result, about, [*not_run(plan.races), *filter(None, [unmeasured])]) + "\n"
        )


def _race(plan: Plan, models: dict[str, Any]) -> list[Lane]:
    lanes = []
    for race in plan.races:
        slice_, model = cut(*race.size), models[race.dtype]
        # float64 takes minutes for a larger model, and an accelerator is not where errors differ.
        exact = oracle(model, slice_, plan.checked) if model.device.type == "cpu" else None
        lanes += run_race(race, slice_, model, exact)
    return lanes


def _peaks(
    plan: list[Peak], models: dict[str, Any], given: argparse.Namespace
) -> dict[Peak, float]:
    """Each in a process of its own, from the weights as they are here."""
    peaks: dict[Peak, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        weights = {dtype: _weights(given.model, models[dtype], folder) for dtype in DTYPES}
        for one in plan:
            peaks[one] = peak_mb(
                *(one.contender, one.size),
                dtype=one.dtype,
                weights=weights[one.dtype],
                device=given.device,
            )
            tell(f"memory of {one.contender}, {label(one.size)} {one.dtype}: {peaks[one]:.0f} MB")
    return peaks


def _weights(name: str, model: Any, folder: str) -> str:
    """What a process that measures memory loads."""
    if name == RANDOM:
        return name
    path = Path(folder) / str(model.dtype)
    model.save_pretrained(path)
    return str(path)


def _plan(given: argparse.Namespace) -> Plan:
    if given.device == "cuda":
        return accelerator(given.rounds)
    return quick() if given.quick else full(given.rounds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.scoring",
        description=about_all,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows, one round")
    parser.add_argument("--json", action="store_true", help="one document on standard output")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2, help="the fastest counts")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", choices=NAMES, help="on cuda the random one unless said")
    given = parser.parse_args()
    given.model = given.model or NAMES[given.device == "cuda"]
    return given


if __name__ == "__main__":
    main()
