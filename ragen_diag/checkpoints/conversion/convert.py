"""A checkpoint that holds pickles or shards -> a Hugging Face folder that can be given as --ckpt.

Only what is opened without running any code of the files is converted: verl's FSDP shards, and
files of plain tensors. For every other layout the command that converts it is told.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ragen_diag.checkpoints.conversion.export import (
    Weight,
    copy_base_files,
    new_folder,
    write_weights,
)
from ragen_diag.checkpoints.conversion.shards import read_shards
from ragen_diag.checkpoints.conversion.torchfiles import read_weights
from ragen_diag.checkpoints.folder import read_folder
from ragen_diag.checkpoints.layouts import fsdp_shards, inspect
from ragen_diag.checkpoints.loading.libraries import quiet
from ragen_diag.checkpoints.loading.models import check_weights
from ragen_diag.checkpoints.locate import locate
from ragen_diag.errors import CheckpointError, UsageError

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
INDEX = "pytorch_model.bin.index.json"


@dataclass(frozen=True)
class Converted:
    """What was written: `weights` of them, and the names of what was left out of the source."""

    source: Path
    path: Path
    kind: str
    weights: int
    size: int
    dtype: str
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def convert_checkpoint(
    source: str, out: Path, *, config_from: Path | None = None, force: bool = False
) -> Converted:
    """Write `source`, a folder, name or file as for --ckpt, as the folder `out`.

    `config_from` is where config.json and the tokenizer are if not beside the weights. Weights keep
    their type. Before the folder appears, its weights are held against config.json by name and
    shape.

    Raises:
        CheckpointError: another layout, damaged files, objects that only unpickling would bring
            back, or weights that are missing, left over or of another shape.
        UsageError: `out` is there already or cannot be written.
    """
    located = locate(source, [])
    if located.path is None:
        raise UsageError(f"{source}: is on the Hub; download it first, and give its folder")
    place, kind, weights, left_out = _read(located.path)
    base = config_from or (place / "huggingface" if (place / "huggingface").is_dir() else place)
    if out.exists() and out.resolve() in (
        place.resolve(),
        base.resolve(),
        *place.resolve().parents,
    ):
        raise UsageError(f"{out}: is part of the checkpoint itself; give another name")
    with new_folder(out, force=force) as part:
        copy_base_files(base, part)
        write_weights(part, weights)
        try:
            files = read_folder(part, tokenizer="not asked for")
            with quiet():
                notes = check_weights(part)
        except CheckpointError as error:
            raise CheckpointError(str(error).replace(str(part), str(located.path))) from error
    return Converted(
        source=located.path,
        path=out,
        kind=kind,
        weights=len(weights),
        size=sum(weight.size for weight in weights.values()),
        dtype=files.stored_dtype,
        left_out=left_out,
        notes=notes,
    )


def _read(path: Path) -> tuple[Path, str, Mapping[str, Weight], tuple[str, ...]]:
    """The folder of the weights, their layout's name, and the weights."""
    shards = fsdp_shards(path) if path.is_dir() else None
    if shards is not None:
        return shards, "FSDP shards", *read_shards(shards)
    files = [path] if path.is_file() and any(map(path.match, PICKLES)) else _pickles(path)
    if files:
        return files[0].parent, "pickled weights", *_read_pickles(files)
    inspect(path)
    raise UsageError(f"{path}: needs no conversion; give it as it stands with --ckpt")


def _pickles(folder: Path) -> list[Path]:
    """The files of the model in a folder, all of them and no others."""
    if any(True for _ in folder.glob("*.safetensors")) or not folder.is_dir():
        return []
    index = folder / INDEX
    if index.is_file():
        try:
            named = json.loads(index.read_bytes())["weight_map"]
            names = sorted({Path(str(name)).name for name in named.values()})
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{index}: no index of weights; copy it again") from error
        missing = [name for name in names if not (folder / name).is_file()]
        if missing or not names:
            raise CheckpointError(f"{folder}: {', '.join(missing[:3]) or 'no file'} is missing")
        return [folder / name for name in names]
    single = folder / "pytorch_model.bin"
    return [single] if single.is_file() else []


def _read_pickles(files: list[Path]) -> tuple[dict[str, Weight], tuple[str, ...]]:
    weights: dict[str, Weight] = {}
    left_out: list[str] = []
    for file in files:
        state = read_weights(file)
        left_out += state.others
        for name, tensor in state.weights.items():
            if hasattr(tensor, "_local_tensor"):
                raise CheckpointError(f"{file}: one shard of several; give the folder of all")
            if name in weights:
                raise CheckpointError(f"{file}: {name} is in another file too; copy them again")
            weights[name] = Weight.of(tensor)
    return weights, tuple(left_out)
