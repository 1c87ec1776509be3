"""A `.wandb` file, the record of a W&B run on disk -> its rows, by the messages of `wandb`.

The file is a log in LevelDB's form: blocks of 32 KiB, records cut into checked pieces. It is read
here, since `wandb` no longer ships its own reader.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ragen_diag.errors import HistoryError
from ragen_diag.history.lines import parsed
from ragen_diag.history.rows import OWN_COUNTER, Entry, Row, stepped
from ragen_diag.history.tally import NOT_A_NUMBER, TORN, Damage, Tally

if TYPE_CHECKING:
    from wandb.proto.wandb_internal_pb2 import HistoryRecord

MAGIC = b":W&B"
_FILE_HEADER = 7
_BLOCK = 2**15
_PIECE = struct.Struct("<IHB")
_WHOLE, _FIRST, _LAST = 1, 2, 4
_DAMAGED, _TORN = -1, -2
_MAX_DEPTH = 32


def read(path: Path, tally: Tally) -> Iterator[Entry]:
    """The rows of a run's history, in the order they were logged.

    Raises:
        HistoryError: `wandb` is not installed; the file is no such log; more than a tenth of its
            records is damaged; no row has a step.
    """
    return stepped(path, _rows(path, tally), tally)


def _rows(path: Path, tally: Tally) -> Iterator[Row]:
    try:
        from google.protobuf.message import DecodeError
        from wandb.proto.wandb_internal_pb2 import Record
    except ImportError as error:
        raise HistoryError(
            f"{path}: a run of W&B needs more; run: pip install 'ragen-diag[history]'"
        ) from error
    damage = Damage(path, "record")
    with path.open("rb") as stream:
        if not stream.read(_FILE_HEADER).startswith(MAGIC):
            raise HistoryError(f"{path}: no file of a W&B run; name its run-*.wandb")
        stream.seek(0)
        for number, piece in enumerate(_records(stream, tally), start=1):
            damage.rows += 1
            try:
                record = None if piece is None else Record.FromString(piece)
            except DecodeError:
                record = None
            if record is None:
                damage.met(number)
            elif record.HasField("history"):
                yield _row(record.history, tally)
    damage.settle(tally, torn=False)


def _records(stream: IO[bytes], tally: Tally) -> Iterator[bytes | None]:
    """The records, put together from their pieces; None for one that is damaged."""
    whole: bytearray | None = None
    for kind, data in _pieces(stream):
        if kind in (_WHOLE, _FIRST):
            if whole is not None:
                yield None
            whole = bytearray(data)
        elif kind == _DAMAGED:
            yield None
            whole = None
        elif whole is not None:
            whole += data
        if kind in (_WHOLE, _LAST) and whole is not None:
            yield bytes(whole)
            whole = None
        if kind == _TORN:
            tally.left_out[TORN] += 1
            return
    if whole is not None:
        tally.left_out[TORN] += 1


def _pieces(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Kind and data of each piece. Damage costs the rest of its block, as no length holds there."""
    at = _FILE_HEADER
    while block := stream.read(_BLOCK):
        is_last = len(block) < _BLOCK
        while at + _PIECE.size <= len(block):
            crc, size, kind = _PIECE.unpack_from(block, at)
            data = block[at + _PIECE.size : at + _PIECE.size + size]
            at += _PIECE.size + size
            if at > len(block) and is_last:
                yield _TORN, b""
                return
            if zlib.crc32(data, zlib.crc32(bytes([kind]))) != crc or not _WHOLE <= kind <= _LAST:
                yield _DAMAGED, b""
                at = len(block)
                break
            yield kind, data
        if is_last and at < len(block):
            yield _TORN, b""
        at = 0


def _row(history: "HistoryRecord", tally: Tally) -> Row:
    row: dict[str, object] = {}
    for item in history.item:
        keys = list(item.nested_key) or [item.key]
        try:
            value = parsed(item.value_json)
        except (ValueError, RecursionError):
            tally.left_out[NOT_A_NUMBER] += 1
            continue
        if len(keys) > _MAX_DEPTH or not _put(row, keys, value):
            tally.left_out[NOT_A_NUMBER] += 1
    row.setdefault(OWN_COUNTER, history.step.num)
    return row


def _put(row: dict[str, object], keys: list[str], value: object) -> bool:
    """Whether the value found its place: no number stands where a mapping would have to."""
    place: object = row
    for key in keys[:-1]:
        place = place.setdefault(key, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict):
        return False
    place[keys[-1]] = value
    return True
