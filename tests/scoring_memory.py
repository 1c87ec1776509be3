"""Peak memory of scoring a random model of SmolLM2's width, for `test_scoring_cost`.

Prints one JSON document. A process of its own, as the peak is the whole process's.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from scoring_cases import Policy, Rows

from ragen_diag.scoring import score


def status(name: str) -> float:
    """MB of this process: VmRSS now, VmHWM at most since the last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith(name))


def main() -> None:
    torch.set_num_threads(1)
    n_rows, n_prompts = map(int, sys.argv[1:])
    config = transformers.LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=1,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    rng = np.random.default_rng(0)

    def ids(length: int) -> list[int]:
        return rng.integers(0, 49_152, length).tolist()

    prompts = [ids(250) for _ in range(n_prompts)]
    cross = Rows(prompts, [[]] * n_rows, [ids(103) for _ in range(n_rows)])
    small = Rows(prompts[:1], [[]], [ids(3)])
    policy = Policy(model, vocab_size=49_152)
    # What libraries allocate once at the first use is no part of it.
    score(policy, small, response_ids=small.names)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    score(policy, cross, response_ids=cross.names)
    sys.stdout.write(json.dumps({"peak_mb_above_weights": status("VmHWM") - before}))


if __name__ == "__main__":
    main()
