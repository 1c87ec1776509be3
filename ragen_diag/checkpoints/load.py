"""A located checkpoint in, a model ready to score out, with how and where it runs and why.

Nothing is guessed or made up: weights that the files don't hold are an error, remote code and
pickles are never used, and a folder is opened without the network.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ragen_diag.checkpoints.adapter import AdapterFiles
from ragen_diag.checkpoints.folder import DTYPES
from ragen_diag.checkpoints.gguf import GgufFiles
from ragen_diag.checkpoints.layouts import Files, inspect, on_base
from ragen_diag.checkpoints.loading.dequantised import compare_tokenizers, load_dequantised
from ragen_diag.checkpoints.loading.hub import download
from ragen_diag.checkpoints.loading.libraries import quiet
from ragen_diag.checkpoints.loading.models import load_model, load_tokenizer
from ragen_diag.checkpoints.locate import Located
from ragen_diag.errors import CheckpointError, UsageError

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True)
class Checkpoint:
    """A policy, ready to score.

    `found` tells how the name given was resolved; `fingerprint` identifies weights, configuration
    and tokenizer by content; `reason` says why this device and dtype; `notes` what else was met on
    loading; `max_length` is None where the model has no limit.
    """

    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    path: str
    found: str
    revision: str | None
    fingerprint: str
    stored_dtype: str
    dtype: str
    device: str
    reason: str
    step: int | None
    max_length: int | None
    vocab_size: int
    notes: tuple[str, ...] = ()
    quantised: bool = False
    """Its weights are those of the policy rounded to a few bits."""
    experts: int = 0
    """Of a layer, among which a token's way is decided; 0 without any."""


def open_checkpoint(
    located: Located,
    *,
    dtype: str = "auto",
    device: str = "auto",
    revision: str | None = None,
    tokenizer: str | None = None,
    base_model: str | None = None,
) -> Checkpoint:
    """Load model and tokenizer in evaluation mode, without gradients.

    `dtype` auto is float32 on a CPU (exact for half-precision checkpoints) and the stored one on
    an accelerator; `device` auto is cuda, else mps, else cpu. `revision` is for Hub ids alone;
    `base_model`, a folder or Hub id, for adapters alone, which are merged into it.

    Raises:
        CheckpointError: not there, not loadable as it stands, or weights that do not fit.
        UsageError: a device or dtype that this machine does not have.
    """
    chosen_device, device_reason = choose_device(device)
    path, commit = _fetched(located, revision)
    files = inspect(path, tokenizer=tokenizer, base_model=base_model)
    if isinstance(files, AdapterFiles) and files.base_files is None:
        files = on_base(files, _fetched_base(files), tokenizer=tokenizer)
    stored = str(files.stored_dtype)
    chosen_dtype, dtype_reason = choose_dtype(dtype, chosen_device, stored)
    with quiet():
        model, notes = _load(files, chosen_dtype, chosen_device)
        source = tokenizer or (files.tokenizer if isinstance(files, AdapterFiles) else str(path))
        loaded_tokenizer = load_tokenizer(source)
        if isinstance(files, GgufFiles):
            notes += compare_tokenizers(loaded_tokenizer, source, files)
    return Checkpoint(
        found=located.how,
        model=model,
        tokenizer=loaded_tokenizer,
        path=located.hub_id or str(path),
        revision=commit,
        fingerprint=files.fingerprint,
        stored_dtype=stored,
        dtype=chosen_dtype,
        device=str(model.device),
        reason=f"{device_reason}; {dtype_reason}",
        step=located.step,
        max_length=files.max_length,
        vocab_size=int(model.get_input_embeddings().weight.shape[0]),
        notes=notes,
        quantised=isinstance(files, GgufFiles) and files.quantised,
        experts=_experts(model.config),
    )


def _experts(config: Any) -> int:
    named = (getattr(config, name, None) for name in EXPERTS)
    return next((count for count in named if isinstance(count, int) and count > 1), 0)


def _fetched(located: Located, revision: str | None) -> tuple[Path, str | None]:
    """The checkpoint's folder, and its commit if it is of the Hub."""
    if located.hub_id is not None:
        return download(located.hub_id, revision)
    if revision is not None:
        raise UsageError(f"--revision {revision} is for Hub ids; {located.path} is a folder")
    return located.path or Path(), None


def _fetched_base(adapter: AdapterFiles) -> Path:
    try:
        return download(str(adapter.base.hub_id), adapter.base_revision)[0]
    except CheckpointError as error:
        raise CheckpointError(
            f"{adapter.path}: the base of this adapter, {error}; or name its folder with"
            " --base-model"
        ) from error


def _load(files: Files, dtype: str, device: str) -> tuple[Any, tuple[str, ...]]:
    if isinstance(files, GgufFiles):
        return load_dequantised(files, dtype=dtype, device=device)
    if not isinstance(files, AdapterFiles):
        return load_model(files.path, dtype=dtype, device=device)
    # peft takes a second to import.
    from ragen_diag.checkpoints.loading.merge import merge_adapter

    base = files.base_files or files
    model, notes = load_model(base.path, dtype=dtype, device=device)
    merged, note = merge_adapter(model, files)
    return merged, (note, *notes)


def choose_device(choice: str) -> tuple[str, str]:
    """The device and the reason for it.

    Raises:
        UsageError: a device that is not there.
    """
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if choice == "auto":
        device = next(name for name, available in there.items() if available)
        return device, "no accelerator found" if device == "cpu" else "an accelerator was found"
    kind, _, index = choice.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if not there.get(kind) or (index and not (index.isdecimal() and int(index) < count)):
        available = ", ".join(name for name, is_there in there.items() if is_there)
        raise UsageError(f"--device {choice}: not on this machine, which has {available}")
    return choice, "device as asked"


def choose_dtype(choice: str, device: str, stored: str) -> tuple[str, str]:
    """The dtype to compute in and the reason for it.

    Raises:
        UsageError: a dtype that the device can't compute in.
    """
    if choice == "auto" and stored not in DTYPES.values():
        return "float32", f"{stored} weights dequantised"
    if choice == "auto":
        if device.startswith("cuda") or stored == "float64":
            return stored, "dtype as stored"
        if stored == "float32":
            return "float32", "dtype as stored"
        return "float32", f"{stored} weights upcast, which is exact"
    if choice not in ("float32", "bfloat16", "float16"):
        raise UsageError(f"--dtype {choice}: choose auto, float32, bfloat16 or float16")
    if choice == "bfloat16" and device.startswith("cuda") and not torch.cuda.is_bf16_supported():
        raise UsageError(f"--dtype bfloat16: {device} can't compute in it; choose float32")
    rounded = "" if choice in ("float32", stored) else f", {stored} weights rounded"
    return choice, f"dtype as asked{rounded}"
