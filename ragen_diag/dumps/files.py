"""Paths -> the dump files behind them, in natural order, each known by its first bytes.

Nothing is globbed: a path is taken letter by letter. Knows formats only well enough to refuse
what is none; reads no rows.
"""

import errno
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen_diag.dumps.steps import step_of_file
from ragen_diag.errors import DumpError

REMOTE = re.compile(r"(s3|gs|hf|https?)://")

TIERS: tuple[tuple[str, ...], ...] = (
    (".parquet", ".jsonl", ".ndjson", ".arrow"),
    (".pt", ".table.json", ".json", ".yaml", ".yml"),
    (".csv", ".tsv", ".pkl", ".bin"),
)
"""Endings of the files that a folder is searched for; a later tier only if the earlier ones give
nothing: beside rollouts lie configurations and metrics."""
PACKED = ("", ".gz", ".zst")
METRICS, MESSAGES = "metrics.json", "messages.json"
"""How the names of an episode's two files end; they are read as one, under the first."""

_NO_DUMPS = re.compile(
    r"(checkpoint|ckpt|weight|broadcast)s?([-_]?\d.*)?|global_step_?\d+|ragen-diag-out|plots"
    r"|tensorboard|__pycache__",
    re.IGNORECASE,
)
_MODEL_FILES = re.compile(
    r"(config|generation_config|tokenizer.*|special_tokens_map|added_tokens|vocab|.*\.index"
    r"|trainer_state|adapter_config|training_args|optimizer|scheduler|rng_state.*|model.*)\.\w+"
)
_MOST_LEVELS = 8


@dataclass(frozen=True)
class DumpFile:
    """A file that may be a dump. `named` is one that the user gave, not found in a folder.

    `path` is a `Path`, or the URL of a remote file."""

    path: Path | str
    named: bool = True

    @property
    def name(self) -> str:
        """The file's own name."""
        return str(self.path).rpartition("/")[2]


def is_remote(given: str | Path) -> bool:
    """Whether a path is a URL."""
    return isinstance(given, str) and REMOTE.match(given) is not None


def find_files(given: str | Path) -> Iterator[list[DumpFile]]:
    """The files behind one path: the file itself, or a folder's files, tier after tier.

    A folder is searched to any depth, without hidden files, folders of checkpoints and of earlier
    reports, and without links to folders. Where samples were written twice, as `all` and as
    `effective`, only `all` is taken. Order: natural, so that 9 comes before 10.

    Raises:
        DumpError: the path is missing, neither file nor folder, or not UTF-8.
    """
    if is_remote(given):
        yield [DumpFile(str(given))]
        return
    path = _path(given)
    try:
        _require_there(path)
        if path.is_file():
            yield [DumpFile(_stands_for(path))]
        elif path.is_dir():
            found = sorted(_below(path), key=lambda p: natural_key(str(p)))
            yield from ([DumpFile(p, named=False) for p in found if _is_of(p, t)] for t in TIERS)
        else:
            raise DumpError(f"{path}: neither a regular file nor a folder; write it to a file")
    except OSError as error:
        where = error.filename or given
        raise DumpError(
            f"{where}: cannot be opened ({error.strerror}); can you read it otherwise?"
        ) from error


def refuse_copies(files: Iterable[DumpFile]) -> None:
    """The rows of a copy would count twice.

    Raises:
        DumpError: two files hold the same bytes and name the same step.
    """
    alike: dict[tuple[int, int | None], list[Path]] = {}
    for file in files:
        if isinstance(file.path, Path):
            key = file.path.stat().st_size, step_of_file(file.path)
            alike.setdefault(key, []).append(file.path)
    for paths in alike.values():
        first: dict[str | None, Path] = {}
        for path in paths if len(paths) > 1 else ():
            copied = first.setdefault(digest([DumpFile(path)]), path)
            if copied is not path:
                raise DumpError(f"{path}: a copy of {copied}; name one of them")


def digest(files: Iterable[DumpFile]) -> str | None:
    """SHA-256 over the bytes of all files in order; of one file its ordinary checksum.

    None where a file is remote: it is not read whole.
    """
    total = hashlib.sha256()
    for file in files:
        if isinstance(file.path, str):
            return None
        with file.path.open("rb") as stream:
            while block := stream.read(1 << 20):
                total.update(block)
    return total.hexdigest()


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which numbers inside names count as numbers.

    >>> sorted(["10.jsonl", "2.jsonl", "step_0100", "step_99"], key=natural_key)
    ['2.jsonl', '10.jsonl', 'step_99', 'step_0100']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    return tuple((0, int(part), part) if "0" <= part[0] <= "9" else (1, 0, part) for part in parts)


def _path(given: str | Path) -> Path:
    if not str(given):
        raise DumpError("a dump's path is empty; name a dump file or a folder of them")
    path = Path(given)
    _require_utf8(path)
    return path


def _stands_for(path: Path) -> Path:
    """The metrics that an episode's messages belong to; any other file is itself."""
    metrics = path.with_name(path.name.removesuffix(MESSAGES) + METRICS)
    return metrics if path.name.endswith(MESSAGES) and metrics.is_file() else path


def _require_utf8(path: Path) -> None:
    readable = os.fsencode(path).decode(errors="replace")
    if readable != str(path):
        raise DumpError(f"{readable}: the name is not UTF-8; rename it first")


def _require_there(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError as error:
        if path.is_symlink():
            raise DumpError(f"{path}: a dangling link; correct it or name its target") from error
        raise DumpError(f"{path}: no such file or folder; check the spelling") from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DumpError(f"{path}: a link that leads back to itself; correct it") from error


def _is_of(path: Path, tier: Sequence[str]) -> bool:
    name = path.name.lower()
    return any(name.endswith(ending + packed) for ending in tier for packed in PACKED)


def _below(folder: Path, levels: int = _MOST_LEVELS) -> Iterator[Path]:
    """The files of all tiers in a folder and below it."""
    entries = sorted(folder.iterdir())
    names = {entry.name for entry in entries}
    if "result.json" in names:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if any(_is_of(entry, tier) for tier in TIERS):
            _require_utf8(entry)
            _require_there(entry)
            if entry.is_file() and not _is_beside(entry.name, names):
                yield entry
        if entry.is_dir() and not entry.is_symlink() and levels and _may_hold(entry, names):
            yield from _below(entry, levels - 1)


def _is_beside(name: str, names: set[str]) -> bool:
    """Whether a file belongs to a model, or to an episode that its metrics stand for."""
    part_of_episode = METRICS in names and name in (MESSAGES, "assistant_texts.json")
    return part_of_episode or _MODEL_FILES.fullmatch(name) is not None


def _may_hold(folder: Path, siblings: set[str]) -> bool:
    if folder.name == "effective" and "all" in siblings:
        return False
    return not _NO_DUMPS.fullmatch(folder.name) or _is_a_step_of_rollouts(folder)


def _is_a_step_of_rollouts(folder: Path) -> bool:
    """`global_step_5/rollout.jsonl` names a step; beside shards of a model it is a checkpoint."""
    if not folder.name.startswith("global_step"):
        return False
    return not any((folder / part).exists() for part in ("actor", "policy", "config.json"))
