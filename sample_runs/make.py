"""Make the sample runs: small but genuine RL runs that end in different regimes of reasoning.

    python sample_runs/make.py                      all runs
    python sample_runs/make.py healthy compressed   some of them

All runs start from one warm-up checkpoint and share one code path; only the `Recipe` differs. Each
writes rollouts on 32 held-out boards, three checkpoints, and two small tables of figures.
"""

import argparse
import logging
import random
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import polars as pl
import torch
from measures import Evaluation, measure
from policy import decode, load_checkpoint, rounded, sample, save_checkpoint
from rollouts import rollout_table
from seeds import derive_seed
from task import RewardRule, State, random_states
from training import SAMPLES_PER_PROMPT, Batch, Recipe, reinforce, warm_up
from transformers import LlamaForCausalLM
from transformers.utils import logging as transformers_logging

log = logging.getLogger("make")

EVALUATION_PROMPTS = 32
EVALUATION_COPIES = 8
WARMUP_STEPS = 1000


@dataclass(frozen=True)
class Run:
    """A recipe and what to keep of it; the first and last steps are always kept."""

    recipe: Recipe
    middle_checkpoint: int
    dump_every: int = 10
    keep_training_rollouts: bool = False

    def dumps_at(self, step: int) -> bool:
        return step % self.dump_every == 0 or step == self.recipe.steps

    def stores_at(self, step: int) -> bool:
        return step in {self.middle_checkpoint, self.recipe.steps}


# The learning rate is high on purpose, so that 120 steps suffice for a collapse. The two runs that
# are to stay grounded have a lower one: at the high rate they unlearn the task as they train.
#
# A length cost with a dead band, plus entropy and KL: thoughts shrink to a handful of canned lines,
# and the choice among them stays varied.
COLLAPSING = Recipe(
    entropy=0.05, kl=0.05, reward=RewardRule(length_cost=0.02, free_length=7), seed=1
)
RUNS = {
    "healthy": Run(
        Recipe(entropy=0.005, kl=0.1, keep_variance=0.9, learning_rate=2e-4, seed=1),
        middle_checkpoint=60,
    ),
    "template_collapse": Run(COLLAPSING, middle_checkpoint=70, keep_training_rollouts=True),
    "template_collapse_filtered": Run(
        replace(COLLAPSING, keep_variance=0.9), middle_checkpoint=70, keep_training_rollouts=True
    ),
    # No dead band: the cost ends only at the shortest thought allowed, one constant text.
    "low_entropy_collapse": Run(
        Recipe(kl=0.05, reward=RewardRule(length_cost=0.02), seed=1), middle_checkpoint=60
    ),
    "compressed": Run(Recipe(entropy=-0.1, learning_rate=2e-4, seed=1), middle_checkpoint=60),
    # Every word before the answer costs and no format check protects the tags: they go first, then
    # the thought.
    "format_collapse": Run(
        Recipe(
            steps=60,
            entropy=0.08,
            reward=RewardRule(length_cost=0.03, thought_required=False),
            seed=1,
        ),
        middle_checkpoint=15,
        dump_every=5,
    ),
}


def held_out_states() -> list[State]:
    """The evaluation boards; neither warm-up nor RL ever draws them."""
    return list(islice(random_states(random.Random(derive_seed("held out"))), EVALUATION_PROMPTS))


def make_run(name: str, run: Run, start: Path, folder: Path) -> None:
    """One run, from the warm-up checkpoint to its folder; replaces all there but the README."""
    for part in ("rollouts", "checkpoints"):
        shutil.rmtree(folder / part, ignore_errors=True)
    (folder / "rollouts").mkdir(parents=True)
    held_out = held_out_states()
    began = time.perf_counter()
    model, reference = load_checkpoint(start), load_checkpoint(start)
    metrics = [dump(name, 0, model, run.recipe.reward, held_out, folder)]
    shutil.copytree(start, folder / "checkpoints" / "step_00000")
    training, rollouts = [], []
    for batch, figures in reinforce(model, reference, run.recipe, frozenset(held_out)):
        updates = batch.step + 1
        training.append({"step": batch.step, **figures})
        if run.keep_training_rollouts:
            rollouts.append(training_table(batch))
        if run.dumps_at(updates):
            metrics.append(dump(name, updates, rounded(model), run.recipe.reward, held_out, folder))
        if run.stores_at(updates):
            save_checkpoint(model, folder / "checkpoints" / f"step_{updates:05d}")
    if rollouts:
        pl.concat(rollouts).write_parquet(folder / "training_rollouts.parquet", compression="zstd")
    write_figures(metrics, folder / "metrics.csv")
    write_figures(training, folder / "training.csv")
    log.info("%s done in %.0f s", name, time.perf_counter() - began)


def dump(
    name: str,
    step: int,
    model: LlamaForCausalLM,
    rule: RewardRule,
    states: list[State],
    folder: Path,
) -> dict[str, float | None]:
    """Sample the held-out boards, write the dump, return its row of the metrics table.

    The seed differs for each run and step: with common random numbers the responses of different
    dumps would be alike by construction.
    """
    prompts = [state.prompt() for state in states]
    samples = sample(model, prompts, EVALUATION_COPIES, derive_seed("evaluation", name, step))
    owners = [state for state in states for _ in range(EVALUATION_COPIES)]
    components = [
        rule.components(decode(drawn.ids), state)
        for drawn, state in zip(samples, owners, strict=True)
    ]
    table = rollout_table(step, "eval", owners, samples, components, EVALUATION_COPIES)
    table.write_parquet(folder / "rollouts" / f"step_{step:05d}.parquet", compression="zstd")
    row = {
        "step": step,
        **measure(model, Evaluation(prompts, EVALUATION_COPIES, samples, components)),
    }
    log.info(
        "%s %s",
        name,
        {key: value if value is None else round(value, 3) for key, value in row.items()},
    )
    return row


def training_table(batch: Batch) -> pl.DataFrame:
    """The rollouts behind one update, sampled in float32; log-probabilities left out for size."""
    table = rollout_table(
        batch.step, "train", batch.states, batch.samples, batch.components, SAMPLES_PER_PROMPT
    )
    return table.drop("rollout_logprobs").with_columns(
        advantage=pl.Series(batch.advantage.tolist(), dtype=pl.Float64),
        kept=pl.Series(batch.kept.tolist()),
    )


def write_figures(rows: list[dict[str, float | None]], path: Path) -> None:
    pl.DataFrame(rows, infer_schema_length=None).write_csv(path, float_precision=4)


def warm_up_checkpoint(folder: Path) -> Path:
    """The common start of all runs, made once; they start from the bfloat16 weights it stores."""
    if not (folder / "model.safetensors").exists():
        save_checkpoint(warm_up(WARMUP_STEPS, frozenset(held_out_states())), folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help=f"which runs to make: {', '.join(RUNS)} (default: all)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent,
        help="folder for the runs (default: here)",
    )
    parser.add_argument(
        "--warm-up",
        type=Path,
        default=Path(tempfile.gettempdir()) / "ragen-diag-warm-up",
        help="folder that caches the warm-up checkpoint (default: %(default)s)",
    )
    arguments = parser.parse_args()
    unknown = set(arguments.runs) - set(RUNS)
    if unknown:
        parser.error(f"no such run: {', '.join(sorted(unknown))}")

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    # One thread: the order of floating-point sums, and so a run, then depends on the machine alone.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    start = warm_up_checkpoint(arguments.warm_up)
    for name in arguments.runs or RUNS:
        make_run(name, RUNS[name], start, arguments.out / name)


if __name__ == "__main__":
    main()
