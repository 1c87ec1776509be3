"""A path a user names -> the files of one log and what kind they are. Reads their first bytes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ragen_diag.errors import HistoryError
from ragen_diag.history.lines import parsed
from ragen_diag.history.offline import MAGIC
from ragen_diag.history.trainer_state import LOG

Kind = Literal["jsonl", "csv", "trainer_state", "tensorboard", "wandb"]

_EVENTS = "*.tfevents.*"
_HEAD = 2**16
_SHOWN = 5
_KNOWN = (
    "JSON lines, CSV, trainer_state.json, TensorBoard's events.out.tfevents.* or W&B's run-*.wandb"
)


@dataclass(frozen=True)
class Source:
    """One log: files of one kind, in the order they were written.

    `beside` is the number of files of logs further down in the folder, which are not read.
    """

    kind: Kind
    paths: tuple[Path, ...]
    beside: int = 0


def find(path: Path) -> Source:
    """The log at a path: a file, or a folder that holds one log or whose folders do.

    The event files of one folder are one log, and so are several W&B folders of one run id: a
    writer that was started again.

    Raises:
        HistoryError: nothing is there, it is no log that is known, or there are several.
    """
    if path.is_file():
        return Source(_kind(path), (path,))
    if not path.is_dir():
        raise HistoryError(f"{path}: no such file or folder; name the log of the training run")
    inside = sorted(p for p in path.iterdir() if p.is_dir() and not p.is_symlink())
    below = [log for folder in inside for log in _own(folder)]
    own = _own(path)
    found = own or _joined(below) or _plain(path)
    if not found:
        raise HistoryError(f"{path}: no log in this folder; name a file: {_KNOWN}")
    if len(found) > 1:
        names = ", ".join(ascii(str(log.paths[0].relative_to(path))) for log in found[:_SHOWN])
        raise HistoryError(f"{path}: {len(found)} logs in this folder ({names}); name one of them")
    return replace(found[0], beside=sum(len(log.paths) for log in below) if own else 0)


def _own(folder: Path) -> list[Source]:
    """Logs that their names give away, directly in a folder."""
    logs = [Source("wandb", (file,)) for file in sorted(folder.glob("*.wandb"))]
    if events := sorted(folder.glob(_EVENTS), key=_natural):
        logs.append(Source("tensorboard", tuple(events)))
    if (state := folder / "trainer_state.json").is_file():
        logs.append(Source("trainer_state", (state,)))
    return logs


def _plain(folder: Path) -> list[Source]:
    return [
        Source("jsonl" if file.suffix == ".jsonl" else "csv", (file,))
        for pattern in ("*.jsonl", "*.csv")
        for file in sorted(folder.glob(pattern))
    ]


def _joined(logs: Iterable[Source]) -> list[Source]:
    """W&B's folders carry the time in their names, and their files the id of the run."""
    by_run: dict[object, Source] = {}
    for log in logs:
        run = log.paths[0].name if log.kind == "wandb" else log.paths
        before = by_run.get(run, Source(log.kind, ()))
        by_run[run] = Source(log.kind, before.paths + log.paths)
    return list(by_run.values())


def _natural(path: Path) -> list[tuple[int, str]]:
    """Event files carry the second of their beginning in their names."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in _parts(path.name)]


def _parts(name: str) -> list[str]:
    return re.split(r"([0-9]+)", name)


def _kind(path: Path) -> Kind:
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if not head:
        raise HistoryError(f"{path}: the file is empty (0 bytes); name the log that was written")
    if head.startswith(MAGIC) or path.suffix == ".wandb":
        return "wandb"
    if path.match(_EVENTS):
        return "tensorboard"
    if path.suffix.lower() in (".csv", ".tsv"):
        return "csv"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if path.suffix.lower() == ".json" and not _is_row(text.partition(b"\n")[0]):
        return "trainer_state"
    if text.startswith(b"{") or path.suffix.lower() in (".jsonl", ".ndjson"):
        return "jsonl"
    raise HistoryError(f"{path}: no log that is known (packed?); name one of these: {_KNOWN}")


def _is_row(line: bytes) -> bool:
    """Whether a first line is a JSON object by itself, and so one of many."""
    try:
        row = parsed(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and LOG not in row
