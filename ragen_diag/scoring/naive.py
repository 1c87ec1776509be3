"""The reference: one full forward pass per pair, no cache, no batch, no padding.

Slow and plain on purpose. Every faster path is compared with it, in the tests and in each run.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def token_logp(
    model: Any,
    prompt_ids: Sequence[int],
    opening_ids: Sequence[int],
    reasoning_ids: Sequence[int],
    *,
    temperature: float = 1.0,
    places: Sequence[int] | None = None,
) -> NDArray[np.float64]:
    """(T,) log p of each reasoning token given prompt, opening and the tokens before it, in nats.

    RAGEN-2 Eq. 1. The log-softmax is taken in float64, whatever the model computes in. Needs at
    least one token before the reasoning. `places` asks for some of the T tokens alone, which
    spares the logits of the others.
    """
    ids = [*prompt_ids, *opening_ids, *reasoning_ids]
    first = len(ids) - len(reasoning_ids)
    asked = range(len(reasoning_ids)) if places is None else places
    told_by = torch.tensor([first + t - 1 for t in asked], device=model.device)
    keep = {"logits_to_keep": told_by} if _keeps_logits(model) else {}
    with torch.inference_mode():
        forget_lengths(model)
        # The last token predicts nothing, so it is not fed.
        input_ids = torch.tensor([ids[:-1]], device=model.device)
        logits_TV = model(input_ids=input_ids, use_cache=False, **keep).logits[0]
        if len(logits_TV) != len(told_by):
            logits_TV = logits_TV[told_by]
        logp_T = [
            torch.log_softmax(logits_V.cpu().double() / temperature, dim=-1)[ids[first + t]]
            for t, logits_V in zip(asked, logits_TV, strict=True)
        ]
    return np.array([float(logp) for logp in logp_T])


def score_pair(
    model: Any,
    prompt_ids: Sequence[int],
    opening_ids: Sequence[int],
    reasoning_ids: Sequence[int],
    *,
    temperature: float = 1.0,
) -> float:
    """log p(reasoning given prompt + opening), the sum of `token_logp`; 0 without tokens."""
    if not reasoning_ids:
        return 0.0
    logp_T = token_logp(model, prompt_ids, opening_ids, reasoning_ids, temperature=temperature)
    return float(logp_T.sum())


def score_naive(
    model: Any,
    prompt_ids_P: Sequence[Sequence[int]],
    opening_ids_R: Sequence[Sequence[int]],
    reasoning_ids_R: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
) -> NDArray[np.float64]:
    """Every row under every prompt, (R, P) nats, pair by pair."""
    rows = zip(opening_ids_R, reasoning_ids_R, strict=True)
    return np.array(
        [
            [score_pair(model, x, opening, z, temperature=temperature) for x in prompt_ids_P]
            for opening, z in rows
        ]
    ).reshape(len(reasoning_ids_R), len(prompt_ids_P))


def _keeps_logits(model: Any) -> bool:
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def forget_lengths(model: Any) -> None:
    """Undo what earlier, longer sequences left behind in a model whose rotary base grows with them.

    "dynamic" rotary scaling keeps the base of the longest sequence seen until a short one comes
    along; without this the score of a pair would depend on the pairs before it.
    """
    # `rope_parameters` since transformers 5, `rope_scaling` before, neither in other models.
    names = [name for name in ("rope_parameters", "rope_scaling") if hasattr(model.config, name)]
    if any("dynamic" in str(getattr(model.config, name)) for name in names):
        model(input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.device))
