"""A located checkpoint in, a model ready to score out, with how and where it runs and why.

Nothing is guessed or made up: weights that the files don't hold are an error, remote code and
pickles are never used, and a folder is opened without the network.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import transformers
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_diag.checkpoints.folder import CheckpointFiles
from ragen_diag.checkpoints.layouts import inspect
from ragen_diag.checkpoints.locate import Located
from ragen_diag.errors import CheckpointError, UsageError

DOWNLOADED = ("*.safetensors", "*.json", "*.model", "*.txt", "*.tiktoken")
NOT_DOWNLOADED = ("*/*", "consolidated*")
"""Sub-folders and a second copy of the weights in another layout."""


@dataclass(frozen=True)
class Checkpoint:
    """A policy, ready to score.

    `fingerprint` identifies weights, configuration and tokenizer by content; `reason` says why
    this device and dtype; `notes` what else was met on loading; `max_length` is None where the
    model has no limit.
    """

    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    path: str
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


def open_checkpoint(
    located: Located,
    *,
    dtype: str = "auto",
    device: str = "auto",
    revision: str | None = None,
    tokenizer: str | None = None,
) -> Checkpoint:
    """Load model and tokenizer in evaluation mode, without gradients.

    `dtype` auto is float32 on a CPU (exact for half-precision checkpoints) and the stored one on
    an accelerator; `device` auto is cuda, else mps, else cpu. `revision` is for Hub ids alone.

    Raises:
        CheckpointError: not there, not loadable as it stands, or weights that do not fit.
        UsageError: a device or dtype that this machine does not have.
    """
    chosen_device, device_reason = choose_device(device)
    if located.hub_id is not None:
        path, commit = _download(located.hub_id, revision)
    else:
        if revision is not None:
            raise UsageError(f"--revision {revision} is for Hub ids; {located.path} is a folder")
        path, commit = located.path or Path(), None
    files = inspect(path, tokenizer=tokenizer)
    chosen_dtype, dtype_reason = choose_dtype(dtype, chosen_device, files.stored_dtype)
    with _quiet():
        model, notes = _load_model(files, chosen_dtype, chosen_device)
        loaded_tokenizer = _load_tokenizer(tokenizer or str(path))
    return Checkpoint(
        model=model,
        tokenizer=loaded_tokenizer,
        path=located.hub_id or str(path),
        revision=commit,
        fingerprint=files.fingerprint,
        stored_dtype=files.stored_dtype,
        dtype=chosen_dtype,
        device=str(model.device),
        reason=f"{device_reason}; {dtype_reason}",
        step=located.step,
        max_length=files.max_length,
        vocab_size=int(model.get_input_embeddings().weight.shape[0]),
        notes=notes,
    )


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
        return device, "cpu: no accelerator found" if device == "cpu" else f"{device}: found"
    kind, _, index = choice.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if not there.get(kind) or (index and not (index.isdecimal() and int(index) < count)):
        available = ", ".join(name for name, is_there in there.items() if is_there)
        raise UsageError(f"--device {choice}: not on this machine, which has {available}")
    return choice, f"{choice}: asked for"


def choose_dtype(choice: str, device: str, stored: str) -> tuple[str, str]:
    """The dtype to compute in and the reason for it.

    Raises:
        UsageError: a dtype that the device can't compute in.
    """
    if choice == "auto":
        if device.startswith("cuda") or stored == "float64":
            return stored, f"{stored}: as stored"
        if stored == "float32":
            return "float32", "float32: as stored"
        return "float32", f"float32: {stored} weights upcast, exact for {stored} checkpoints"
    if choice not in ("float32", "bfloat16", "float16"):
        raise UsageError(f"--dtype {choice}: choose auto, float32, bfloat16 or float16")
    if choice == "bfloat16" and device.startswith("cuda") and not torch.cuda.is_bf16_supported():
        raise UsageError(f"--dtype bfloat16: {device} can't compute in it; choose float32")
    rounded = "" if choice in ("float32", stored) else f", {stored} weights rounded"
    return choice, f"{choice}: asked for{rounded}"


def _load_model(files: CheckpointFiles, dtype: str, device: str) -> tuple[Any, tuple[str, ...]]:
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(files.path),
            dtype=getattr(torch, dtype),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
        model, info = loaded
        model = model.to(device).eval().requires_grad_(False)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise CheckpointError(f"{files.path}: can't be loaded: {_first_line(error)}") from error
    for problem, keys in (
        ("weights are missing", info["missing_keys"]),
        ("weights have another shape than config.json says", info["mismatched_keys"]),
        ("weights can't be converted", info.get("error_msgs", ())),
    ):
        if keys:
            raise CheckpointError(
                f"{files.path}: {len(keys)} {problem}: {_listed(keys)}; they would have been "
                "made up, so copy or merge the checkpoint again"
            )
    unused = info["unexpected_keys"]
    return model, (f"{len(unused)} weights not used: {_listed(unused)}",) if unused else ()


def _load_tokenizer(source: str) -> Any:
    try:
        return AutoTokenizer.from_pretrained(
            source, local_files_only=Path(source).is_dir(), trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise CheckpointError(
            f"tokenizer {source}: can't be loaded: {_first_line(error)}"
        ) from error


def _download(hub_id: str, revision: str | None) -> tuple[Path, str]:
    """The folder of a Hub snapshot, from the cache if it is there, and its commit."""
    try:
        with _quiet():
            path = huggingface_hub.snapshot_download(
                hub_id,
                revision=revision,
                allow_patterns=list(DOWNLOADED),
                ignore_patterns=list(NOT_DOWNLOADED),
            )
    except (HfHubHTTPError, EntryNotFoundError, HFValidationError, OSError) as error:
        wanted = hub_id + (f" at {revision}" if revision else "")
        raise CheckpointError(
            f"{wanted}: can't be had from the Hub ({type(error).__name__}: {_first_line(error)}); "
            "check name and revision, log in with `hf auth login`, or fetch it with a network"
        ) from error
    return Path(path), Path(path).name


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' progress bars and advice off the terminal; errors are raised as ever."""
    logging: Any = transformers.utils.logging
    hub: Any = huggingface_hub.utils
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_bars = not hub.are_progress_bars_disabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
        if hub_bars:
            hub.enable_progress_bars()


def _listed(keys: Any) -> str:
    names = sorted(key if isinstance(key, str) else str(key[0]) for key in keys)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
