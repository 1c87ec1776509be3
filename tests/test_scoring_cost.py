"""What scoring costs, in numbers that do not depend on the machine: products and memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scoring_cases import VOCAB, how, rows, tiny
from torch.utils.flop_counter import FlopCounterMode

from ragen_diag.errors import ScoringError
from ragen_diag.scoring.columns import score_columns

MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_TRIM_THRESHOLD_": "1048576"}


@pytest.mark.parametrize("chunk", [5, 16, 512])
def test_products_are_those_of_the_shared_tokens_and_no_others(chunk: int) -> None:
    """2 x weights of the layers for every token that is fed, 2 x head for every row that tells a
    scored token: neither padding, nor prompts read again, nor logits that nobody asked for."""
    model, cross = tiny("llama-gqa-tied"), rows()
    with FlopCounterMode(display=False) as counter:
        work = score_columns("ragged", cross.pairs(), how(model, chunk), set()).work
    layers = sum(w.numel() for w in model.model.layers.parameters() if w.ndim == 2)
    head = model.get_output_embeddings().weight.numel()
    expected = 2 * layers * work.fed_tokens + 2 * head * work.head_rows
    assert counter.get_flop_counts()["Global"] == {torch.ops.aten.mm: expected}
    # Prompts begin alike in one pair of 9 tokens, rows in one of 13; the last token of a row that
    # no other goes on from tells nothing.
    prompts = sum(map(len, cross.prompt_ids_P)) - 9
    fed = sum(len(o) + len(z) for o, z in zip(*cross.lists()[1:], strict=True)) - 13 - 9
    assert work.fed_tokens == prompts + 6 * fed
    assert head == VOCAB * 32


def test_memory_does_not_grow_with_rows_and_prompts(tmp_path: Path) -> None:
    """Above its weights a model of SmolLM2's width needs less than 100 MB, 12 times the pairs or
    not; the logits of 15 full sequences alone would be 1 GB."""
    script = Path(__file__).parent / "scoring_memory.py"

    def peak(rows: int, prompts: int) -> float:
        told = subprocess.run(
            [sys.executable, script, str(rows), str(prompts)],
            capture_output=True,
            text=True,
            check=True,
            # Else the allocator keeps what is freed, by chance more or less.
            env=os.environ | MALLOC,
        )
        return float(json.loads(told.stdout)["peak_mb_above_weights"])

    few, many = peak(5, 1), peak(15, 4)
    assert many < few + 20 < 100


def test_memory_that_runs_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other path is tried, as it would need more."""
    model, cross = tiny("llama-gqa-tied"), rows()

    def full(*args: object, **kwargs: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 5.70 GiB")

    monkeypatch.setattr(model.base_model, "forward", full)
    with pytest.raises(ScoringError, match=r"out of memory while scoring; .* --batch-tokens"):
        score_columns("ragged", cross.pairs(), how(model), set())
