"""How fast the machine multiplies matrices: what a time is held against."""

import statistics
import time

import torch

from tests.benchmarks.scoring.models import DTYPES

SIZE = {"cpu": 2048, "cuda": 8192}
TIMES = 5


def gemm_rate(dtype: str, device: str) -> float:
    """FLOP per second of a square product in this dtype and the process's threads: the median."""
    size = SIZE[device]
    a, b = (torch.randn(size, size, device=device).to(DTYPES[dtype]) for _ in range(2))
    out = torch.mm(a, b)
    seconds = []
    for _ in range(TIMES):
        wait(device)
        started = time.perf_counter()
        torch.mm(a, b, out=out)
        wait(device)
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / statistics.median(seconds)


def wait(device: str) -> None:
    """Until everything that was asked for is computed."""
    if device == "cuda":
        torch.cuda.synchronize()
