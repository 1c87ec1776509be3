"""Peak memory above a model's weights, of one contender in a process of its own.

Resident memory on a CPU, from Linux's high-water mark; what PyTorch allocates on an accelerator.
A few tokens are scored first, so that libraries and kernels are loaded and not counted. Blocks of
1 MiB and more are mapped, so that they are given back when they are freed: by its own rule glibc
keeps some of them, by chance more or less, and a figure would vary by 50 MB from run to run.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from tests.benchmarks.scoring.contenders import CONTENDERS
from tests.benchmarks.scoring.models import RANDOM, load, reload
from tests.benchmarks.scoring.slices import cut

ROOT = Path(__file__).parents[3]
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_TRIM_THRESHOLD_": "1048576"}
RESET = Path("/proc/self/clear_refs")


def unmeasurable(device: str) -> str | None:
    """Why memory can't be measured here."""
    if device == "cuda" or RESET.exists():
        return None
    return f"memory was not measured: this system has no {RESET}"


def peak_mb(
    contender: str, size: tuple[str, int, int], *, dtype: str, weights: str, device: str
) -> float:
    """Megabytes (10^6) above the weights while a slice of this kind, P and R is scored.

    `weights` is the folder of a saved model, or the name of the random model.
    """
    asked = {"contender": contender, "size": size, "dtype": dtype, "weights": weights}
    asked |= {"device": device, "threads": torch.get_num_threads()}
    command = [sys.executable, "-m", "tests.benchmarks.scoring.memory", json.dumps(asked)]
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ | MALLOC, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(json.loads(run.stdout))


def _measure(
    contender: str, size: tuple[str, int, int], *, dtype: str, weights: str, device: str
) -> float:
    model = load(dtype, RANDOM, device) if weights == RANDOM else reload(Path(weights), device)
    slice_ = cut(*size)
    CONTENDERS[contender](model, dtype, slice_.begun(4))
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        CONTENDERS[contender](model, dtype, slice_)
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    # Else memory that was freed while loading would be used again and not count.
    ctypes.CDLL(None).malloc_trim(0)
    RESET.write_text("5")
    before = _resident("VmRSS")
    CONTENDERS[contender](model, dtype, slice_)
    return (_resident("VmHWM") - before) / 1e6


def _resident(name: str) -> int:
    """Bytes; VmHWM is the most since it was reset."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def main() -> None:
    """What `peak_mb` runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("asked", type=json.loads)
    asked = parser.parse_args().asked
    torch.set_num_threads(asked.pop("threads"))
    sys.stdout.write(json.dumps(_measure(asked.pop("contender"), asked.pop("size"), **asked)))


if __name__ == "__main__":
    main()
