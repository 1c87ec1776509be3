"""Weights, one at a time, and the files of a base -> a Hugging Face folder that appears whole.

Knows nothing of where the weights come from.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from safetensors.torch import save_file

from ragen_diag.checkpoints.folder import INDEX, TOKENIZER_FILES
from ragen_diag.errors import CheckpointError, UsageError

SHARD_BYTES = 5_000_000_000
COPIED = (
    "config.json",
    "generation_config.json",
    *TOKENIZER_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
OURS = ".ragen-diag-convert-"
"""How the folder's name begins while it is written."""


@dataclass(frozen=True)
class Weight:
    """A weight that is made when it is written."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], torch.Tensor]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Weight":
        """One that is there already."""
        return cls(tuple(tensor.shape), tensor.dtype, lambda: tensor)

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * self.dtype.itemsize


@contextmanager
def new_folder(out: Path, *, force: bool) -> Iterator[Path]:
    """A folder to write to, which becomes `out` if nothing goes wrong, and else leaves no trace.

    Raises:
        UsageError: `out` is there without `force`, is no folder of a checkpoint, or cannot be
            written.
    """
    _require_free(out, force)
    try:
        part = Path(tempfile.mkdtemp(prefix=OURS, dir=out.absolute().parent))
        try:
            yield part
            part.chmod(0o777 & ~_umask())
            if out.exists():
                shutil.rmtree(out)
            os.replace(part, out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error


def write_weights(folder: Path, weights: Mapping[str, Weight]) -> None:
    """Write safetensors, in several files with an index if they are more than 5 GB.

    Raises:
        CheckpointError: a weight is of a type that safetensors does not know.
    """
    shards = list(_shards(weights))
    where: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = "model.safetensors"
        if len(shards) > 1:
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        # Copies, as weights that share memory cannot be written.
        tensors = {name: weights[name].make().clone().contiguous() for name in names}
        try:
            save_file(tensors, folder / file, metadata={"format": "pt"})
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"{names[0]} and others: not storable ({error})") from error
        where |= dict.fromkeys(names, file)
    if len(shards) > 1:
        total = sum(weight.size for weight in weights.values())
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def copy_base_files(base: Path, folder: Path) -> None:
    """Copy the configuration and the tokenizer's files, and no code.

    Raises:
        CheckpointError: there is no configuration.
    """
    if not (base / "config.json").is_file():
        raise CheckpointError(
            f"{base}: no config.json; name a folder that has it, such as the base model's, with"
            " --config-from"
        )
    for name in COPIED:
        for file in base.glob(name):
            shutil.copyfile(file, folder / file.name)


def _shards(weights: Mapping[str, Weight]) -> Iterator[list[str]]:
    names: list[str] = []
    size = 0
    for name, weight in weights.items():
        if names and size + weight.size > SHARD_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += weight.size
    if names:
        yield names


def _require_free(out: Path, force: bool) -> None:
    if not out.absolute().parent.is_dir():
        raise UsageError(f"{out}: there is no such folder to put it in; make it first")
    if not os.path.lexists(out):
        return
    if not force:
        raise UsageError(f"{out}: is there already; give another name, or --force to replace it")
    # So that a slip of the pen does not remove somebody's home.
    is_ours = out.is_dir() and not out.is_symlink() and (out / "config.json").is_file()
    if not is_ours or any(entry.is_dir() for entry in out.iterdir()):
        raise UsageError(f"{out}: is no plain folder of a checkpoint; give another name")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
