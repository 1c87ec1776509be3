"""A file of `torch.save` -> the weights in it, by the weights-only loader, which runs no code.

Knows no layout: nested dicts are searched for the model, and wrappers' marks leave the names.
"""

import logging
import pickle
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import torch
from torch.torch_version import TorchVersion

from ragen_diag.checkpoints.loading.libraries import told
from ragen_diag.errors import CheckpointError, UsageError

SAFE_FROM = "2.6"
"""Before, weights-only loading could be made to run code (CVE-2025-32434)."""
WRAPPERS = ("model", "module", "state_dict", "model_state_dict", "app", "policy", "actor")
"""Under these trainers keep the model beside the optimiser and others."""
MARKS = re.compile(r"(^|(?<=\.))(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""What compiling and sharding put into names."""
OLD_NAMES = {
    "api.DTensor": "DTensor",
    "placement_types.DTensorSpec": "_dtensor_spec.DTensorSpec",
    "placement_types.TensorMeta": "_dtensor_spec.TensorMeta",
    "placement_types.Partial": "Partial",
    "placement_types.Replicate": "Replicate",
    "placement_types.Shard": "Shard",
}
"""Names in torch.distributed._tensor before torch 2.5 -> those in torch.distributed.tensor."""


@dataclass(frozen=True)
class State:
    """Weights by name, DTensors among them, and the names of what else the file holds."""

    weights: Mapping[str, torch.Tensor]
    others: tuple[str, ...]


def read_weights(file: Path) -> State:
    """The weights of one file, which stay on disk until they are used where the file allows it.

    Raises:
        CheckpointError: the file is damaged, holds no weights, or objects that only unpickling,
            which can run code, would bring back.
        UsageError: this torch is too old for opening a stranger's file.
    """
    if TorchVersion(torch.__version__) < SAFE_FROM:
        raise UsageError(f"torch {torch.__version__} opens no pickle safely; install {SAFE_FROM}")
    packed = _checked(file)
    try:
        with _distributed_names(), catch_warnings(action="ignore"):
            value = torch.load(file, map_location="cpu", weights_only=True, mmap=packed)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f" ({found[1]})" if found else ""
        raise CheckpointError(
            f"{file}: holds objects{what} that only unpickling, which can run code, would bring"
            " back; convert it with the trainer, where you trust it"
        ) from error
    # What the loader raises on bytes that are not as they were written is listed nowhere.
    except Exception as error:
        raise CheckpointError(
            f"{file}: a damaged torch file ({told(error)}); copy it again"
        ) from error
    weights, others = _model_of(value)
    if not weights:
        raise CheckpointError(f"{file}: holds no weights by name; is it the model's file?")
    return State({_plain(name): weight for name, weight in weights.items()}, tuple(others))


def _checked(file: Path) -> bool:
    """Whether the file is a zip archive, as torch writes it since 1.6; all of it is then there."""
    try:
        if not zipfile.is_zipfile(file):
            return False
        with zipfile.ZipFile(file) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > file.stat().st_size:
                raise zipfile.BadZipFile("it holds more than it is long")
            # By the checksums, since the loader trusts the bytes that it gets.
            if (broken := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"{broken} has another checksum than was written")
    except (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, OSError) as error:
        raise CheckpointError(f"{file}: a damaged torch file ({error}); copy it again") from error
    return True


@contextmanager
def _distributed_names() -> Iterator[None]:
    """Let sharded tensors through, which torch holds to be safe, under their old names too."""
    import torch.distributed.tensor as tensors

    here: list[Any] = []
    for old, new in OLD_NAMES.items():
        value: Any = tensors
        for part in new.split("."):
            value = getattr(value, part)
        here.append((value, f"torch.distributed._tensor.{old}"))
    # It says that the processes of the training are not here.
    log = logging.getLogger("torch.distributed.device_mesh")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with torch.serialization.safe_globals(here):
            yield
    finally:
        log.setLevel(level)


def _model_of(value: Any) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The innermost dict of tensors, and the names of what lies beside it on the way."""
    others: list[str] = []
    while isinstance(value, Mapping):
        weights = {str(name): w for name, w in value.items() if isinstance(w, torch.Tensor)}
        inner = next((n for n in WRAPPERS if isinstance(value.get(n), Mapping)), None)
        others += [str(name) for name in value if str(name) not in weights and name != inner]
        if inner is None:
            return weights, others
        value = value[inner]
    return {}, others


def _plain(name: str) -> str:
    return MARKS.sub("", name).removeprefix("module.")
