"""What the sums ought to be: the same weights in float64, one pair at a time.

All arithmetic is float64 but for the cosines and sines of the rotary positions, which the model's
own code takes in float32: they are part of what the model is.
"""

import copy
from typing import Any

import torch

from ragen_diag.scoring.naive import score_pair
from tests.benchmarks.scoring.contenders import Outcome
from tests.benchmarks.scoring.slices import Slice

Oracle = dict[tuple[int, int], float]


def oracle(model: Any, slice_: Slice, count: int) -> Oracle:
    """Nats of `count` pairs, those that `Slice.checked` names."""
    exact = copy.deepcopy(model).double()
    for parent in list(exact.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                # The model's own computes in float32, whatever it is given.
                norm = torch.nn.RMSNorm(child.weight.shape, eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(parent, name, norm)
    return {
        (r, p): score_pair(exact, slice_.prompt_ids_P[p], [], slice_.reasoning_ids_R[r])
        for r, p in slice_.checked(count)
    }


def error_per_token(outcome: Outcome, exact: Oracle, slice_: Slice) -> float:
    """The largest difference of a pair's sum, in nats per token of its response."""
    return max(
        abs(float(outcome.logp_RP[r, p]) - value) / len(slice_.reasoning_ids_R[r])
        for (r, p), value in exact.items()
    )
