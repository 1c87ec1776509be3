"""A located checkpoint in, a model ready to score out, with how and where it runs and why.

Nothing is guessed or made up: weights that the files don't hold are an error, remote code and
pickles are never used, and a folder is opened without the network.
"""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import transformers
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_diag.checkpoints.folder import CheckpointFiles
from ragen_diag.checkpoints.layouts import inspect
from ragen_diag.checkpoints.locate import Located
from ragen_diag.checkpoints.weights import judge_weights
from ragen_diag.errors import CheckpointError, UsageError

DOWNLOADED = ("*.safetensors", "*.json", "*.model", "*.txt", "*.tiktoken")
NOT_DOWNLOADED = ("*/*", "consolidated*")
"""Sub-folders and a second copy of the weights in another layout."""

UNBOUNDED = 10**30
"""No limit of tokens, the way transformers itself writes it."""


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
        found=located.how,
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


def _load_model(files: CheckpointFiles, dtype: str, device: str) -> tuple[Any, tuple[str, ...]]:
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(files.path),
            dtype=getattr(torch, dtype),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            # Not to use them, but to have them in `info`: the loader's own error names none.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        model, info = loaded
        model = model.to(device).eval().requires_grad_(False)
    # A third party's code on a stranger's files: what it raises is not listed anywhere and differs
    # from model to model (StrictDataclassError, ZeroDivisionError, TypeError, ...).
    except Exception as error:
        raise CheckpointError(
            f"{files.path}: can't be loaded ({_told(error)}); check its config.json, or copy the "
            "checkpoint again"
        ) from error
    return model, judge_weights(files.path, info)


def _load_tokenizer(source: str) -> Any:
    is_folder = Path(source).is_dir()
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, local_files_only=is_folder, trust_remote_code=False
        )
    # As in `_load_model`; the tokenizers library raises bare `Exception`.
    except Exception as error:
        advice = "copy tokenizer.json and the other JSON files again" if is_folder else "check it"
        raise CheckpointError(
            f"tokenizer {source}: can't be loaded ({_told(error)}); {advice}, or give another "
            "with --tokenizer"
        ) from error
    # Else it warns on the terminal of texts that are too long for the model, which are left out
    # and counted elsewhere.
    tokenizer.model_max_length = UNBOUNDED
    return tokenizer


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
    # What the network raises depends on the HTTP library, which huggingface_hub has changed twice.
    except Exception as error:
        wanted = hub_id + (f" at {revision}" if revision else "")
        raise CheckpointError(f"{wanted}: {_hub_problem(error)}") from error
    return Path(path), Path(path).name


def _hub_problem(error: Exception) -> str:
    """What is wrong and what to do; the narrower error goes first."""
    if isinstance(error, HFValidationError):
        return f"no name of a Hub repository ({_told(error)}); give org/name, or a folder"
    if isinstance(error, GatedRepoError):
        return "gated; accept its terms on its Hub page, then log in with `hf auth login`"
    if isinstance(error, RevisionNotFoundError):
        return "no such revision of this Hub repository; check --revision"
    if isinstance(error, RepositoryNotFoundError):
        return (
            "no such repository on the Hub, or a private one; check the name, or log in with "
            "`hf auth login`"
        )
    if isinstance(error, LocalEntryNotFoundError):
        why = "the Hub cannot be reached; fetch it where there is a network, or give a folder"
        if isinstance(error.__cause__, HfHubHTTPError):
            why = f"the Hub refused ({_told(error.__cause__)}); log in with `hf auth login`"
        if huggingface_hub.constants.HF_HUB_OFFLINE:
            why = "HF_HUB_OFFLINE forbids asking the Hub; unset it, or give a folder"
        return f"not in the local cache, and {why}"
    return (
        f"can't be had from the Hub ({_told(error)}); try again, log in with `hf auth login`, or "
        "give a folder"
    )


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


def _told(error: Exception) -> str:
    """Kind and words of a library's error on one line."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return textwrap.shorten(words, 300, placeholder=" ...")
