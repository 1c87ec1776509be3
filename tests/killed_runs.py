"""A scoring run that is killed again and again, for `test_resume`. Prints one JSON document.

A process of its own, so that children can be forked from it before anything else has threads.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scoring_cases import VOCAB, Policy, Rows, tiny

from ragen_diag.scoring import Resume, Scores, pairs, score
from ragen_diag.scoring.journal import Journal, Record


def cases() -> Rows:
    rng = np.random.default_rng(0)

    def ids(n: int) -> list[int]:
        return rng.integers(0, VOCAB, n).tolist()

    system = ids(12)
    return Rows([system + ids(5) for _ in range(6)], [[]] * 48, [ids(9) for _ in range(48)])


def run(model: Any, folder: Path | None) -> Scores:
    cross = cases()
    resume = None if folder is None else Resume(folder, "tiny")
    return score(Policy(model), cross, response_ids=cross.names, resume=resume)


def child(model: Any, folder: Path, log: Path, out: Path) -> None:
    """One run. What it scored is told in the log as soon as it is kept."""
    keep = Journal.write

    def write(self: Journal, name: str, record: Record) -> None:
        time.sleep(0.01)
        keep(self, name, record)
        with log.open("a") as stream:
            stream.write(f"{name}\n")

    Journal.write = write  # type: ignore[method-assign]
    scores = run(model, folder)
    np.save(out, scores.logp_RP)


def written_to(log: Path) -> int:
    return len(log.read_text().split()) if log.exists() else 0


def wait_for(log: Path, records: int) -> None:
    """Until so many are kept, however busy the machine is; not for ever, as all may be."""
    give_up = time.monotonic() + 10.0
    while written_to(log) < records and time.monotonic() < give_up:
        time.sleep(0.002)


def main() -> None:
    torch.set_num_threads(1)
    # 48 rows of 9 tokens in 14 pieces under 6 prompts: 84 columns.
    model = tiny("qwen3")
    pairs.PIECE_TOKENS, pairs.PIECE_PROMPTS = 30, 1
    home = Path(sys.argv[1])
    folder, log, out = home / "unfinished", home / "log", home / "scores.npy"
    random.seed(int(sys.argv[2]))
    kills, moments = 0, set()
    while not out.exists():
        pid = os.fork()
        if pid == 0:
            child(model, folder, log, out)
            os._exit(0)
        if kills < 20:
            wait_for(log, written_to(log) + random.randint(0, 6))
            time.sleep(random.uniform(0.0, 0.01))
            os.kill(pid, signal.SIGKILL)
            kills += 1
        os.waitpid(pid, 0)
        moments.add(len(list(folder.glob("*.npz"))))
    straight = run(model, None).logp_RP
    written = log.read_text().split()
    told = {
        "kills": kills,
        "moments": len(moments),
        "equal": np.load(out).tobytes() == straight.tobytes(),
        "written": len(written),
        "distinct": len(set(written)),
        "kept": len(list(folder.glob("*.npz"))),
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
