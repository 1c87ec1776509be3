"""Where a checkpoint is: a path, a name beside the dump, or a Hub id. Opens no file, loads nothing.

run/rollouts/400.jsonl  --ckpt step_400   ->  run/checkpoints/global_step_400/actor
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ragen_diag.errors import CheckpointError

STEP = re.compile(
    r"(?:^|[^a-z])(?:global[_-]?step|step|checkpoint|ckpt|iter)[_-]?0*(\d+)(?:_hf)?$", re.IGNORECASE
)
"""step_400, step_00400, global_step_400, checkpoint-400, iter_0000400, step400_hf, ..."""

SHELVES = ("", "checkpoints", "ckpts")
"""Sub-folders of a run in which trainers keep checkpoints; the run folder itself first."""
LEVELS_UP = 2
"""Folders above the dump's that are searched: run/rollouts/step_400/part.parquet."""

INNER = (
    "actor/huggingface",
    "huggingface",
    "actor/model/huggingface",
    "model/huggingface",
    "actor/lora_adapter",
    "lora_adapter",
    "actor",
    "policy",
    "weight",
    "weights",
)
"""Sub-folders of a step that may hold the model, the readiest first."""
LOADABLE = ("*.safetensors",)
CONVERTIBLE = ("*.gguf", "*.bin", "*.pt", "*.pth", "*.distcp", ".metadata")
CONFIGURATIONS = ("config.json", "adapter_config.json")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Located:
    """A checkpoint's place: exactly one of `path` and `hub_id`; `how` says why this one."""

    path: Path | None
    hub_id: str | None
    how: str
    step: int | None


def locate(ckpt: str, dump_paths: Sequence[Path]) -> Located:
    """Find `ckpt`: an existing path, else a name near the dump, else a Hub id.

    A name is looked up in the folder of each dump and the two above it, and in their
    `checkpoints` and `ckpts`; names of one step are one name whatever their prefix and zeros
    (`400`, `step_400`, `checkpoint-00400`). The nearest is taken and the others are told.

    Raises:
        CheckpointError: found nowhere; the message lists the folders that were searched.
    """
    given = Path(ckpt).expanduser()
    if given.is_file() or (given.is_dir() and _holds_model(given)):
        return _found(given, "the path given")
    bases = [] if given.is_absolute() else list(_bases(dump_paths))
    found = list(dict.fromkeys(path for base in bases for path in _named(base, ckpt)))
    usable = [path for path in found if _holds_model(path)]
    if usable:
        others = ", ".join(str(path) for path in usable[1:])
        return _found(usable[0], f"named {ckpt}" + (f"; also there: {others}" if others else ""))
    if _is_hub_id(ckpt, bases):
        return Located(None, ckpt, f"Hub id {ckpt}", None)
    if given.exists():
        found.insert(0, given)
    empty = f" ({found[0]} holds no model)" if found else ""
    searched = f" and none of that name in {', '.join(map(str, bases))}" if bases else ""
    raise CheckpointError(
        f"checkpoint {ckpt}: no such path{searched}{empty}; give a folder, or a Hub id (org/name)"
    )


def checkpoints_beside(dump_paths: Sequence[Path]) -> dict[int, Located]:
    """Step -> its checkpoint, of all folders named after a step near the dump, in order of steps.

    Looked for where `locate` looks for a name; of several of one step the nearest is taken.
    """
    found: dict[int, Located] = {}
    for base in _bases(dump_paths):
        for folder in sorted(base.iterdir()):
            step = parse_step(folder.name)
            if step is not None and step not in found and folder.is_dir() and _holds_model(folder):
                found[step] = replace(_found(folder, f"of step {step}"), step=step)
    return dict(sorted(found.items()))


def parse_step(name: str) -> int | None:
    """The step in a folder's name, or None.

    >>> parse_step("global_step_00400"), parse_step("checkpoint-7"), parse_step("llama-3")
    (400, 7, None)
    """
    match = STEP.search(name)
    return int(match[1]) if match else None


def _found(path: Path, how: str) -> Located:
    model = _model_folder(path) if path.is_dir() else path
    place = model.absolute()
    steps = [parse_step(name) for name in (place.name, *(p.name for p in place.parents[:3]))]
    step = next((step for step in steps if step is not None), None)
    return Located(model, None, f"{model} ({how})", step)


def _model_folder(folder: Path) -> Path:
    """The folder itself or the sub-folder with the model; the folder when there is none.

    What can be loaded as it stands goes first. Of the rest sub-folders go first, as trainers put
    files of their own (data.pt) beside them.
    """
    inner = [folder / name for name in INNER]
    for patterns, candidates in (
        (LOADABLE, [folder, *inner]),
        (CONVERTIBLE, [*inner, folder]),
        (CONFIGURATIONS, [folder, *inner]),
    ):
        for candidate in candidates:
            if any(True for pattern in patterns for _ in candidate.glob(pattern)):
                return candidate
    return folder


def _bases(dump_paths: Sequence[Path]) -> Iterator[Path]:
    """Folders to search, nearest first, each once and only if it exists."""
    seen: set[Path] = set()
    for level in range(LEVELS_UP + 1):
        for dump in dump_paths:
            home = dump if dump.is_dir() else dump.parent
            above = [home, *home.absolute().parents]
            for shelf in SHELVES:
                folder = above[min(level, len(above) - 1)] / shelf
                if folder.absolute() not in seen and folder.is_dir():
                    seen.add(folder.absolute())
                    yield folder


def _named(base: Path, name: str) -> Iterator[Path]:
    """Folders of this name in `base`: the name itself first, then others of the same step."""
    if (base / name).is_dir():
        yield base / name
    step = int(name) if name.isdecimal() else parse_step(name)
    if step is None or "/" in name:
        return
    for folder in sorted(base.iterdir()):
        if parse_step(folder.name) == step and folder.is_dir() and folder.name != name:
            yield folder


def _holds_model(folder: Path) -> bool:
    """Whether anything of a model is there, loadable or not: what is wrong is told later."""
    model = _model_folder(folder)
    patterns = (*LOADABLE, *CONVERTIBLE, *CONFIGURATIONS)
    return any(True for pattern in patterns for _ in model.glob(pattern))


def _is_hub_id(name: str, bases: Sequence[Path]) -> bool:
    """org/name that is not a path near here, or a name that the Hub's cache knows."""
    if HUB_ID.fullmatch(name):
        first, last = name.split("/")
        looks_local = any((base / first).is_dir() for base in (Path(), *bases))
        return not looks_local and parse_step(last) is None
    if re.fullmatch(r"[\w.-]+", name):
        from huggingface_hub.constants import HF_HUB_CACHE

        return (Path(HF_HUB_CACHE) / f"models--{name}").is_dir()
    return False
