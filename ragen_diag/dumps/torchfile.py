"""A `torch.save` file -> plain values, by the weights-only loader, which runs no code.

Tensors become lists where they have one dimension, else a note of their shape. Whatever would
need unpickling is refused.
"""

import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

from ragen_diag.errors import DumpError

_DAMAGED = (
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What the loader may raise on bytes that are not as they were written."""


def read_torch(path: Path) -> Any:
    """What the file holds, with tensors as lists.

    Raises:
        DumpError: the file is no torch archive, is damaged, or holds objects that only unpickling,
            which can run code, would bring back.
    """
    if not _is_torch_archive(path):
        raise DumpError(
            f"{path}: a zip archive, but no torch file; unpack it and name a dump in it"
        )
    import torch

    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DumpError(
            f"{path}: holds objects that only unpickling, which can run code, would bring back;"
            " load it where you trust it and write its rows as JSON lines or Parquet"
        ) from error
    except _DAMAGED as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise DumpError(f"{path}: a damaged torch file ({reason}); write it again") from error
    return _plain(value)


def _is_torch_archive(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            # By the checksums, since the loader trusts the bytes that it gets.
            if (broken := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"{broken} has another checksum than was written")
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, *_DAMAGED) as error:
        raise DumpError(f"{path}: a damaged zip archive ({error}); write it again") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "ndim"):
        return value.tolist() if value.ndim <= 1 else f"tensor of shape {tuple(value.shape)}"
    return value
