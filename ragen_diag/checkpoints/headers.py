"""The header of a safetensors file -> names, types and shapes of its tensors; reads no tensor."""

import json
import struct
from pathlib import Path
from typing import Any

from ragen_diag.errors import CheckpointError

LFS_POINTER = b"version https://git-lfs"
MAX_HEADER = 100_000_000
"""Bytes; the format's own limit."""


def read_header(file: Path) -> dict[str, Any]:
    """Tensor name -> dtype, shape, offsets of a safetensors file, which must be all there.

    Raises:
        CheckpointError: it is empty, cut short, malformed or a Git LFS pointer.
    """
    refuse_pointer(file)
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = struct.unpack("<Q", stream.read(8))[0] if size >= 8 else MAX_HEADER + 1
        text = stream.read(length) if length <= min(size, MAX_HEADER) else b""
    damaged = CheckpointError(f"{file}: not a whole safetensors file ({size} bytes); copy it again")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged from error
    if not isinstance(header, dict):
        raise damaged
    header.pop("__metadata__", None)
    if not header or not all(map(_is_tensor, header.values())):
        raise damaged
    if 8 + length + max(tensor["data_offsets"][1] for tensor in header.values()) != size:
        raise damaged
    return header


def _is_tensor(entry: Any) -> bool:
    match entry:
        case {"dtype": str(), "shape": [*shape], "data_offsets": [int(), int()]}:
            return all(isinstance(length, int) for length in shape)
    return False


def refuse_pointer(file: Path) -> None:
    """A file that Git LFS has not fetched is an error."""
    with file.open("rb") as stream:
        if stream.read(len(LFS_POINTER)) == LFS_POINTER:
            raise CheckpointError(f"{file}: a Git LFS pointer, not the file; run git lfs pull")
