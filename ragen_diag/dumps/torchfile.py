"""A `torch.save` file -> plain values, by the weights-only loader, which runs no code.

Tensors become lists where they have one dimension, else a note of their shape; other objects a
note of their type. Whatever would need unpickling is refused.
"""

import pickle
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any
from warnings import catch_warnings

from ragen_diag.dumps.plain import most_values, plain
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
    struct.error,
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
        # What torch thinks of the file's tensors is no message of ours.
        with catch_warnings(action="ignore"):
            value = torch.load(path, map_location="cpu", weights_only=True)
            size = path.stat().st_size
            return plain(value, size, _Leaves(size))
    except pickle.UnpicklingError as error:
        raise DumpError(
            f"{path}: holds objects that only unpickling, which can run code, would bring back;"
            " load it where you trust it and write its rows as JSON lines or Parquet"
        ) from error
    except _DAMAGED as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise DumpError(f"{path}: a damaged torch file ({reason}); write it again") from error


def _is_torch_archive(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                raise zipfile.BadZipFile("it holds more than it is long")
            # By the checksums, since the loader trusts the bytes that it gets.
            if (broken := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"{broken} has another checksum than was written")
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, *_DAMAGED) as error:
        raise DumpError(f"{path}: a damaged zip archive ({error}); write it again") from error


class _Leaves:
    """Values of the objects in a file that are no plain ones.

    Tensors may be views of one and the same values, so that all together are held to a limit.
    """

    def __init__(self, size: int) -> None:
        self._left = most_values(size)

    def __call__(self, value: Any) -> object:
        import torch

        if not isinstance(value, torch.Tensor):
            return f"object of type {type(value).__name__}"
        if value.is_nested or value.layout != torch.strided or value.is_meta or value.is_quantized:
            return "tensor without plain values"
        if value.ndim > 1 or value.is_complex():
            return f"tensor of shape {tuple(value.shape)}"
        self._left -= value.numel()
        if self._left < 0:
            raise ValueError("shared values write out to too much")
        return value.tolist()
