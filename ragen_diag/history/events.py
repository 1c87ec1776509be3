"""A TensorBoard event file -> the step and name of each scalar, by the messages of `tensorboard`.

The framing of records is read here and not by the package's own loader, which ends without a word
at the first damaged record and goes through TensorFlow where that is installed.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ragen_diag.errors import HistoryError
from ragen_diag.history.rows import Entry
from ragen_diag.history.tally import MAX_DAMAGED, NOT_A_NUMBER, TORN, Damage, Tally

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_CHECKED = 2**16
"""Bytes of the largest record whose checksum is worked out: beyond, pictures take seconds."""


def read(path: Path, tally: Tally) -> Iterator[Entry]:
    """The scalars of a file, in its order; other summaries (text, histograms) are counted.

    Raises:
        HistoryError: `tensorboard` is not installed; more than a tenth of the file is damaged.
    """
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event
    except ImportError as error:
        raise HistoryError(
            f"{path}: TensorBoard's files need more; run: pip install 'ragen-diag[history]'"
        ) from error
    damage = Damage(path, "record")
    for number, record in enumerate(_records(path, tally), start=1):
        damage.rows += 1
        try:
            event = None if record is None else Event.FromString(record)
        except DecodeError:
            event = None
        if event is None:
            damage.met(number)
            continue
        for value in event.summary.value:
            scalar = _scalar(value)
            if scalar is None:
                tally.left_out[NOT_A_NUMBER] += 1
            else:
                yield event.step, {value.tag: scalar}
    damage.settle(tally, torn=False)


def _records(path: Path, tally: Tally) -> Iterator[bytes | None]:
    """The records, None for a damaged one; up to a length that its checksum belies.

    From there no way leads on: a log cut short ends so, and so does one damaged in the middle.

    Raises:
        HistoryError: more than a tenth of the file lies behind such a length.
    """
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    size = path.stat().st_size
    with path.open("rb") as stream:
        while head := stream.read(_HEADER.size):
            start = stream.tell() - len(head)
            length, crc = _HEADER.unpack(head.ljust(_HEADER.size))
            if len(head) == _HEADER.size and masked_crc32c(head[:8]) != crc:
                if size - start > MAX_DAMAGED * size:
                    raise HistoryError(
                        f"{path}: no event file, or damaged from byte {start} of {size} on; copy it"
                        " again from where it was written"
                    )
                tally.left_out[TORN] += 1
                return
            if start + _HEADER.size + length + _CRC.size > size:
                tally.left_out[TORN] += 1
                return
            record = stream.read(length)
            (crc,) = _CRC.unpack(stream.read(_CRC.size))
            yield record if length > _CHECKED or masked_crc32c(record) == crc else None


def _scalar(value: "Summary.Value") -> object:
    """A number as the old and the new writers put it; None for anything else."""
    from tensorboard.util.tensor_util import make_ndarray

    if value.HasField("simple_value"):
        return value.simple_value
    if not value.HasField("tensor") or value.metadata.plugin_data.plugin_name != "scalars":
        return None
    try:
        array = make_ndarray(value.tensor)
    except (TypeError, ValueError):
        return None
    return float(array) if array.ndim == 0 and array.dtype.kind in "fiub" else None
