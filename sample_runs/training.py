"""Supervised warm-up on noisy expert traces, then GRPO with the knobs that separate the regimes."""

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean

import torch
from policy import Sample, build_model, decode, encode, pad_right, sample
from seeds import derive_seed
from task import RewardRule, State, expert_trace, random_states
from torch import Tensor
from transformers import LlamaForCausalLM

log = logging.getLogger(__name__)

PROMPTS_PER_STEP = 8
SAMPLES_PER_PROMPT = 16
WARMUP_BATCH = 64


@dataclass(frozen=True)
class Recipe:
    """The knobs of one RL run. Everything else is the same in all runs."""

    steps: int = 120
    entropy: float = 0.0
    """Weight of the entropy bonus; negative means entropy minimisation."""
    kl: float = 0.0
    """Weight of KL(policy || warm-up checkpoint)."""
    keep_variance: float = 1.0
    """Filter: learn from the prompts that hold this share of the reward variance (the paper's rho).

    1 means no filter.
    """
    reward: RewardRule = field(default_factory=RewardRule)
    learning_rate: float = 5e-4
    seed: int = 0


@dataclass(frozen=True)
class Batch:
    """The rollouts of one RL step, grouped by prompt; `step` counts the updates before them."""

    step: int
    states: list[State]
    samples: list[Sample]
    components: list[dict[str, float]]
    advantage: Tensor
    kept: Tensor


def warm_up(steps: int, held_out: frozenset[State], seed: int = 0) -> LlamaForCausalLM:
    """Imitate fresh expert traces; cosine learning rate, loss on the response only."""
    model = build_model(seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 50, total_iters=50),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 50, eta_min=1e-4),
        ],
        milestones=[50],
    )
    rng = random.Random(derive_seed("warm-up", seed))
    states = random_states(rng, held_out)
    for step in range(1, steps + 1):
        batch = list(islice(states, WARMUP_BATCH))
        logp, _ = response_distributions(
            model, [(encode(state.prompt()), encode(expert_trace(state, rng))) for state in batch]
        )
        loss = -logp.mean()
        update(model, optimizer, loss)
        schedule.step()
        if step % 50 == 0:
            log.info("warm-up step %d loss %.3f", step, loss.item())
    return model


def response_distributions(
    model: LlamaForCausalLM, pairs: list[tuple[list[int], list[int]]]
) -> tuple[Tensor, Tensor]:
    """Log-probability of each response token (N,) and the distribution it came from (N, V).

    N counts the response tokens of all rows, in order.
    """
    ids, mask = pad_right([prompt + response for prompt, response in pairs])
    starts = torch.tensor([[len(prompt)] for prompt, _ in pairs])
    mask &= torch.arange(ids.shape[1]) >= starts
    logits = model(ids[:, :-1]).logits[mask[:, 1:]]
    logps = logits.float().log_softmax(-1)
    return logps.gather(1, ids[:, 1:][mask[:, 1:]][:, None])[:, 0], logps


def update(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def reinforce(
    model: LlamaForCausalLM, reference: LlamaForCausalLM, recipe: Recipe, held_out: frozenset[State]
) -> Iterator[tuple[Batch, dict[str, float]]]:
    """Train `model` in place; yields each batch and its figures after the update it caused.

    Strictly on-policy: one gradient step per batch, so no ratio and no clipping are needed. Seeds
    depend on the recipe's seed and the step only, so recipes with one seed meet the same prompts.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.99), weight_decay=0.0
    )
    states = random_states(random.Random(derive_seed("prompts", recipe.seed)), held_out)
    for step in range(recipe.steps):
        batch = roll_out(model, list(islice(states, PROMPTS_PER_STEP)), step, recipe)
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * min(1.0, (step + 1) / 5)
        losses = policy_gradient_step(model, reference, optimizer, batch, recipe)
        yield batch, {**batch_figures(batch), **losses}


def roll_out(model: LlamaForCausalLM, states: list[State], step: int, recipe: Recipe) -> Batch:
    """Sample and grade a batch, normalise rewards in each group, choose groups to learn from."""
    seed = derive_seed("rollouts", recipe.seed, step)
    samples = sample(model, [state.prompt() for state in states], SAMPLES_PER_PROMPT, seed)
    owners = [state for state in states for _ in range(SAMPLES_PER_PROMPT)]
    components = [
        recipe.reward.components(decode(drawn.ids), state)
        for drawn, state in zip(samples, owners, strict=True)
    ]
    reward = torch.tensor([sum(parts.values()) for parts in components]).view(
        len(states), SAMPLES_PER_PROMPT
    )
    advantage = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)
    kept = top_variance_groups(reward.var(1), recipe.keep_variance).repeat_interleave(
        SAMPLES_PER_PROMPT
    )
    return Batch(step, owners, samples, components, advantage.flatten(), kept)


def top_variance_groups(variance: Tensor, share: float) -> Tensor:
    """Mask of the fewest groups that hold `share` of the reward variance; flat ones never enter."""
    if share >= 1:
        return torch.ones_like(variance, dtype=torch.bool)
    order = variance.argsort(descending=True, stable=True)
    held_before = variance[order].cumsum(0) - variance[order]
    kept = torch.zeros_like(variance, dtype=torch.bool)
    kept[order] = (held_before < share * variance.sum()) & (variance[order] > 0)
    return kept


def policy_gradient_step(
    model: LlamaForCausalLM,
    reference: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    recipe: Recipe,
) -> dict[str, float]:
    """One update; entropy and KL sum over the vocabulary, all terms are means over kept tokens."""
    rows = batch.kept.nonzero()[:, 0].tolist()
    if not rows:
        return {"entropy": float("nan"), "kl": float("nan")}
    pairs = [(encode(batch.states[row].prompt()), batch.samples[row].ids) for row in rows]
    advantage = torch.cat(
        [batch.advantage[row].expand(len(batch.samples[row].ids)) for row in rows]
    )
    logp, logps = response_distributions(model, pairs)
    with torch.no_grad():
        _, reference_logps = response_distributions(reference, pairs)
    entropy = -(logps.exp() * logps).sum(-1).mean()
    kl = (logps.exp() * (logps - reference_logps)).sum(-1).mean()
    update(model, optimizer, -(advantage * logp).mean() - recipe.entropy * entropy + recipe.kl * kl)
    return {"entropy": entropy.item(), "kl": kl.item()}


def batch_figures(batch: Batch) -> dict[str, float]:
    """Means over the batch for the training log."""
    return {
        "reward": fmean(sum(parts.values()) for parts in batch.components),
        "success": fmean(parts["success"] for parts in batch.components),
        "response_tokens": fmean(len(drawn.ids) for drawn in batch.samples),
        "kept_share": batch.kept.float().mean().item(),
    }
