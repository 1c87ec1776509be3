"""How many threads a model is worth: one, if its matrices are small."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

TINY = 5_000_000
"""Parameters. Below, a second thread saves a fifth of the time on an idle machine at best, and
waiting for it in every layer costs several times the work itself on a busy one."""


@contextmanager
def fitting_threads(model: Any) -> Iterator[None]:
    """Run a tiny model in one thread and any other as it is; the setting is restored after."""
    before = torch.get_num_threads()
    if sum(weight.numel() for weight in model.parameters()) < TINY:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
