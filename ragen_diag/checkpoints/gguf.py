"""The header of a GGUF file, read without the gguf library, which parses every token of it.

What is in the header: settings, and name, shape and type of every tensor. No tensor is read.
"""

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from ragen_diag.checkpoints.folder import fingerprint
from ragen_diag.errors import CheckpointError, UsageError

MAGIC = b"GGUF"
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?"} | {
    10: "<Q",
    11: "<q",
    12: "<d",
}
STRING, ARRAY = 8, 9
FLOATS = {0: "float32", 1: "float16", 28: "float64", 30: "bfloat16"}
QUANTISED = {
    **{2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1"},
    **{10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K"},
    **{16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S"},
    **{22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"},
}


@dataclass(frozen=True)
class GgufFiles:
    """A GGUF file that can be loaded: every weight is dequantised.

    `stored_dtype` is a quantised type such as Q4_K if any weights are, else as in other folders.
    """

    path: Path
    stored_dtype: str
    max_length: int | None
    vocabulary: int | None

    @property
    def quantised(self) -> bool:
        """Whether any weights are."""
        return self.stored_dtype not in FLOATS.values()

    @property
    def weight_bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 over the whole file."""
        return fingerprint([self.path])


def read_gguf(path: Path, *, tokenizer: str | None) -> GgufFiles:
    """Check a GGUF file by its header.

    Raises:
        CheckpointError: it is no GGUF file, cut short, one of several parts, or no tokenizer is
            named.
        UsageError: the gguf library, which dequantises, is not installed.
    """
    settings, types = _header(path)
    if tokenizer is None:
        raise CheckpointError(
            f"{path}: name the tokenizer of the model that was trained with --tokenizer, as that"
            " of a GGUF file may encode otherwise; or the file itself to use its own"
        )
    if settings.get("split.count") not in (None, 0, 1):
        raise CheckpointError(f"{path}: one of several parts; join them with llama-gguf-split")
    if (path.parent / "adapter_config.json").exists():
        raise CheckpointError(f"{path}: beside an adapter; move the file to a folder of its own")
    if any(find_spec(name) is None for name in ("gguf", "accelerate")):
        raise UsageError(f"{path}: GGUF needs more; run: pip install 'ragen-diag[gguf]'")
    family = settings.get("general.architecture")
    length = settings.get(f"{family}.context_length")
    size = settings.get(f"{family}.vocab_size") or settings.get("tokenizer.ggml.tokens")
    return GgufFiles(
        path=path,
        stored_dtype=_commonest(types),
        max_length=length if isinstance(length, int) and length > 0 else None,
        vocabulary=size if isinstance(size, int) and size > 0 else None,
    )


def _commonest(types: Mapping[int, int]) -> str:
    candidates = [number for number in types if number not in FLOATS] or list(types)
    number = max(candidates, key=lambda number: types[number])
    return FLOATS.get(number) or QUANTISED.get(number, f"GGML type {number}")


def _header(path: Path) -> tuple[dict[str, Any], Counter[int]]:
    """Settings, arrays as their length; and the number of weights by type."""
    size = path.stat().st_size
    damaged = f"{path}: not a whole GGUF file ({size} bytes); copy it again"
    types: Counter[int] = Counter()
    try:
        with path.open("rb") as stream:
            if stream.read(4) != MAGIC or _scalar(stream, "<I") not in (2, 3):
                raise CheckpointError(f"{path}: no GGUF file of version 2 or 3; copy it again")
            tensors, settings = _scalar(stream, "<Q"), _scalar(stream, "<Q")
            values = dict(_setting(stream) for _ in range(settings))
            last = 0
            for _ in range(tensors):
                _text(stream)
                shape = [_scalar(stream, "<Q") for _ in range(_scalar(stream, "<I"))]
                types[_scalar(stream, "<I")] += prod(shape)
                last = max(last, _scalar(stream, "<Q"))
            start = stream.tell()
    except (struct.error, OSError, OverflowError, LookupError, RecursionError, ValueError) as error:
        raise CheckpointError(damaged) from error
    if not types or start + last >= size:
        raise CheckpointError(damaged)
    return values, types


def _setting(stream: BinaryIO) -> tuple[str, Any]:
    return _text(stream), _value(stream, _scalar(stream, "<I"))


def _value(stream: BinaryIO, kind: int) -> Any:
    if kind == STRING:
        return _text(stream)
    if kind != ARRAY:
        return _scalar(stream, SCALARS[kind])
    inner, count = _scalar(stream, "<I"), _scalar(stream, "<Q")
    if inner in SCALARS:
        stream.seek(struct.calcsize(SCALARS[inner]) * count, 1)
    else:
        for _ in range(count):
            _value(stream, inner)
    return count


def _scalar(stream: BinaryIO, form: str) -> Any:
    return struct.unpack(form, stream.read(struct.calcsize(form)))[0]


def _text(stream: BinaryIO) -> str:
    length = _scalar(stream, "<Q")
    data = stream.read(min(length, 1 << 24))
    if len(data) < length:
        raise ValueError("the file ends within a text")
    return data.decode("utf-8", "replace")
