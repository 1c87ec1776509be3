"""verl's FSDP shards -> whole weights, put together where their placements say.

Each rank's file holds every weight as a DTensor: a piece, the mesh of ranks, and how the weight is
split over it. Pieces are read when a weight is asked for.
"""

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch

from ragen_diag.checkpoints.conversion.export import Weight
from ragen_diag.checkpoints.conversion.torchfiles import State, read_weights
from ragen_diag.checkpoints.loading.libraries import told
from ragen_diag.errors import CheckpointError

RANK_FILE = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")


def read_shards(folder: Path) -> tuple[dict[str, Weight], tuple[str, ...]]:
    """Every weight of the model, and the names of what else the files hold.

    Raises:
        CheckpointError: the file of a rank is missing, they do not fit together, or they hold an
            adapter.
    """
    files = _rank_files(folder)
    states = {rank: read_weights(file) for rank, file in files.items()}
    names = list(states[0].weights)
    for rank, state in states.items():
        if set(state.weights) != set(names):
            raise CheckpointError(
                f"{files[rank]}: holds other weights than {files[0].name}; the shards are of two"
                " models, copy them again"
            )
    if any("lora_" in name for name in names):
        raise CheckpointError(
            f"{folder}: the shards hold a LoRA adapter and its base; give {folder / 'lora_adapter'}"
            " if it is there, else merge them with verl, which writes one"
        )
    return {name: _weight(folder, name, states) for name in names}, states[0].others


def _rank_files(folder: Path) -> dict[int, Path]:
    found = [(match, f) for f in folder.iterdir() if (match := RANK_FILE.fullmatch(f.name))]
    sizes = {int(match[1]) for match, _ in found}
    files = {int(match[2]): file for match, file in found}
    if len(sizes) != 1:
        raise CheckpointError(
            f"{folder}: shards of runs with {', '.join(map(str, sorted(sizes)))} ranks; keep those"
            " of one"
        )
    missing = sorted(set(range(sizes.pop())) - set(files))
    if missing:
        raise CheckpointError(
            f"{folder}: the shards of {len(missing)} ranks are missing, first rank {missing[0]};"
            " bring the files of all machines together"
        )
    return dict(sorted(files.items()))


def _weight(folder: Path, name: str, states: Mapping[int, State]) -> Weight:
    parts = {rank: state.weights[name] for rank, state in states.items()}
    first = parts[0]
    if not _is_sharded(first):
        return _of_plain(parts)
    shape, dtype = tuple(first.shape), first.dtype
    for part in parts.values():
        if not _is_sharded(part) or tuple(part.shape) != shape or part.dtype != dtype:
            raise CheckpointError(f"{folder}: ranks disagree on {name}; copy the shards again")
    return Weight(shape, dtype, lambda: _made(folder, name, parts))


def _made(folder: Path, name: str, parts: Mapping[int, Any]) -> torch.Tensor:
    try:
        return _assembled(folder, name, parts)
    # The file says what stands in these objects.
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder}: {name} cannot be put together ({told(error)}); use the trainer's own merger"
        ) from error


def _of_plain(parts: Mapping[int, torch.Tensor]) -> Weight:
    """A weight that is no DTensor: the same on every rank, or split along its first dimension."""
    pieces = list(parts.values())
    same = all(torch.equal(pieces[0], piece) for piece in pieces[1:])
    return Weight.of(pieces[0] if same else torch.cat(pieces))


def _assembled(folder: Path, name: str, parts: Mapping[int, Any]) -> torch.Tensor:
    first = parts[0]
    ranks = _ranks(first)
    whole = torch.empty(first.shape, dtype=first.dtype)
    filled: set[tuple[tuple[int, int], ...]] = set()
    for rank in ranks.flatten().tolist():
        part = parts.get(rank)
        if part is None:
            raise CheckpointError(f"{folder}: {name} names rank {rank}, of which there is no file")
        at = [int(c) for c in (ranks == rank).nonzero()[0]]
        if list(vars(part._spec.mesh).get("_coordinate_on_dim") or at) != at:
            raise CheckpointError(
                f"{folder}: model_world_size_{len(parts)}_rank_{rank}.pt holds the piece of another"
                " rank; copy the shards again"
            )
        place = _place(folder, name, part, at)
        target = whole[tuple(slice(*ends) for ends in place)]
        piece = part._local_tensor
        if target.shape != piece.shape:
            raise CheckpointError(
                f"{folder}: {name} of rank {rank} is of shape {tuple(piece.shape)}, where"
                f" {tuple(target.shape)} belongs; copy the shards again"
            )
        # Ranks that hold copies of one piece fill it once.
        if place not in filled:
            target.copy_(piece)
            filled.add(place)
    if sum(prod(end - begin for begin, end in place) for place in filled) != whole.numel():
        raise CheckpointError(f"{folder}: {name} is not whole; copy the shards again")
    return whole


def _place(
    folder: Path, name: str, part: Any, coordinate: list[int]
) -> tuple[tuple[int, int], ...]:
    """Begin and end, in each dimension, of the piece at this coordinate of the mesh."""
    begin, length = [0] * part.ndim, list(part.shape)
    sizes = tuple(_ranks(part).shape)
    for placement, size, at in zip(part._spec.placements, sizes, coordinate, strict=True):
        kind = type(placement).__name__
        if kind == "Replicate":
            continue
        if kind != "Shard":
            raise CheckpointError(
                f"{folder}: {name} is placed as {placement}, which is not put together here; use"
                " the trainer's own merger"
            )
        dim = placement.dim
        # As torch.chunk: all pieces but the last ones are equally long, and those may be empty.
        step = -(-length[dim] // size)
        start = min(step * at, length[dim])
        begin[dim] += start
        length[dim] = min(step, length[dim] - start)
    return tuple((b, b + n) for b, n in zip(begin, length, strict=True))


def _is_sharded(tensor: Any) -> bool:
    return hasattr(tensor, "_local_tensor")


def _ranks(tensor: Any) -> torch.Tensor:
    """The mesh of ranks, which torch before 2.9 kept among its attributes."""
    mesh = tensor._spec.mesh
    kept: torch.Tensor | None = vars(mesh).get("mesh")
    if kept is not None:
        return kept
    ranks: torch.Tensor = mesh.mesh
    return ranks
