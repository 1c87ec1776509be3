"""The progress table: how far thoughts still depend on their prompts, by plain cross-scoring.

Written apart from `ragen_diag` on purpose, as a second opinion on its numbers.
R responses, P prompts.
"""

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from policy import Sample, decode, encode, pad_right
from task import thought_words
from transformers import DynamicCache, LlamaForCausalLM

Array = NDArray[np.float64]
TEXTS_PER_BATCH = 8
FEWEST_ROWS = 16
TIE_NATS = 1e-4
"""Scores closer than this are equal, or float32 noise would break the ties of a constant text."""


@dataclass(frozen=True)
class Evaluation:
    """All rollouts of one evaluation: `copies` samples of each prompt, rows grouped by prompt."""

    prompts: list[str]
    copies: int
    samples: list[Sample]
    components: list[dict[str, float]]


def measure(model: LlamaForCausalLM, evaluation: Evaluation) -> dict[str, float | None]:
    """One row of the table. Prompts weigh equally; *_low and *_high bound 95 % intervals."""
    texts = [
        " ".join(thought_words(decode(drawn.ids).split()) or []) for drawn in evaluation.samples
    ]
    scored = [row for row, text in enumerate(texts) if text]
    row: dict[str, float | None] = {
        "success": float(np.mean([parts["success"] for parts in evaluation.components])),
        "reward": float(np.mean([sum(parts.values()) for parts in evaluation.components])),
        "format": float(np.mean([parts["format_penalty"] == 0 for parts in evaluation.components])),
        "valid": len(scored) / len(texts),
    }
    if len(scored) < FEWEST_ROWS:
        return {**row, **dict.fromkeys(INFORMATION_COLUMNS)}
    logp_RP = cross_scores(model, evaluation.prompts, [texts[r] for r in scored])
    own_R = np.array(scored) // evaluation.copies
    lengths_R = np.array([len(texts[r].split()) for r in scored], dtype=float)
    return {
        **row,
        **information(logp_RP, own_R, lengths_R),
        "top1_share": top1_share([texts[r] for r in scored]),
    }


def top1_share(texts: list[str]) -> float:
    return Counter(texts).most_common(1)[0][1] / len(texts)


@torch.no_grad()
def cross_scores(model: LlamaForCausalLM, prompts: list[str], thoughts: list[str]) -> Array:
    """Log-likelihood in nats of every thought after every prompt and the opening tag, (R, P).

    The keys and values of the prompts are computed once for all thoughts, and equal thoughts are
    scored once.
    """
    contexts = torch.tensor([encode(f"{prompt} <think>") for prompt in prompts])
    cache = DynamicCache(config=model.config)
    first = model(contexts, cache=cache, use_cache=True, logits_to_keep=1).logits
    distinct = sorted(set(thoughts), key=lambda text: (len(text.split()), text))
    scores: dict[str, Array] = {}
    for start in range(0, len(distinct), TEXTS_PER_BATCH):
        chunk = distinct[start : start + TEXTS_PER_BATCH]
        ids, mask = (
            part.repeat(len(prompts), 1) for part in pad_right([encode(text) for text in chunk])
        )
        grown = copy.deepcopy(cache)
        grown.batch_repeat_interleave(len(chunk))
        rest = model(ids, cache=grown, use_cache=True).logits[:, :-1]
        logits = torch.cat([first.repeat_interleave(len(chunk), dim=0), rest], dim=1)
        logp = logits.gather(2, ids[..., None])[..., 0] - logits.logsumexp(-1)
        sums = (logp.double() * mask).sum(1).view(len(prompts), len(chunk))
        scores |= {text: sums[:, column].numpy() for column, text in enumerate(chunk)}
    return np.stack([scores[text] for text in thoughts])


def information(logp_RP: Array, own_R: NDArray[np.int64], lengths_R: Array) -> dict[str, float]:
    """Retrieval, mutual information and conditional entropy (RAGEN-2, Sec. 2.3)."""
    prompts = logp_RP.shape[1]
    matched_R = logp_RP[np.arange(len(own_R)), own_R]
    marginal_R = np.logaddexp.reduce(logp_RP, axis=1) - np.log(prompts)
    best_RP = logp_RP >= logp_RP.max(axis=1, keepdims=True) - TIE_NATS
    hit_R = best_RP[np.arange(len(own_R)), own_R] / best_RP.sum(axis=1)

    def balanced(values_R: Array) -> Array:
        return np.array([values_R[own_R == prompt].mean() for prompt in np.unique(own_R)])

    def skill(values: Array) -> Array:
        return (values - 1 / prompts) / (1 - 1 / prompts)

    return {
        "retrieval": float(balanced(hit_R).mean()),
        **with_interval("skill", balanced(hit_R), skill),
        "mi_per_response": float(balanced(matched_R - marginal_R).mean()),
        **with_interval("entropy_per_token", balanced(-matched_R / lengths_R)),
        **with_interval("entropy_per_response", balanced(-matched_R)),
        "thought_tokens": float(balanced(lengths_R).mean()),
    }


def with_interval(
    name: str, per_prompt: Array, transform: Callable[[Array], Array] = lambda values: values
) -> dict[str, float]:
    """The mean over prompts and its bootstrap interval."""
    rng = np.random.default_rng(0)
    draws = per_prompt[rng.integers(len(per_prompt), size=(2000, len(per_prompt)))].mean(axis=1)
    low, high = np.quantile(transform(draws), [0.025, 0.975])
    value = transform(per_prompt.mean())
    return {name: float(value), f"{name}_low": float(low), f"{name}_high": float(high)}


INFORMATION_COLUMNS = (
    "retrieval",
    "skill",
    "skill_low",
    "skill_high",
    "mi_per_response",
    "entropy_per_token",
    "entropy_per_token_low",
    "entropy_per_token_high",
    "entropy_per_response",
    "entropy_per_response_low",
    "entropy_per_response_high",
    "thought_tokens",
    "top1_share",
)
