"""A PEFT adapter's folder, checked before torch starts, and the place of the model it changes.

Knows neither torch nor peft, and reads no tensor.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragen_diag.checkpoints.folder import (
    DTYPES,
    TOKENIZER_FILES,
    CheckpointFiles,
    fingerprint,
    read_json,
)
from ragen_diag.checkpoints.headers import read_header
from ragen_diag.checkpoints.locate import HUB_ID, Located, locate
from ragen_diag.errors import CheckpointError, UsageError

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
MERGEABLE = frozenset(
    {
        "ADALORA",
        "BOFT",
        "IA3",
        "LN_TUNING",
        "LOHA",
        "LOKR",
        "LORA",
        "OFT",
        "TRAINABLE_TOKENS",
        "VERA",
    }
)
"""Kinds that change weights. Others put tokens before the prompt, or read further files that their
configuration names."""
LOADS_MORE = ("megatron_config", "arrow_config")
"""Settings by which peft imports a module, or reads an adapter, that somebody else named."""
EMBEDDINGS = re.compile(r"(^|\.)(embed_tokens|wte|embed_in|word_embeddings|tok_embeddings)\.")
LEVELS_UP = 3
"""Folders above the adapter's, in which a base named by a relative path is looked for."""


@dataclass(frozen=True)
class AdapterFiles:
    """An adapter that can be put on its base.

    `shapes` is name -> shape of its weights; `base` the base's place, and `base_files` its files,
    None while they are still to be fetched from the Hub, at `base_revision`.
    """

    path: Path
    kind: str
    rank: int | None
    shapes: Mapping[str, tuple[int, ...]]
    base: Located
    base_revision: str | None
    base_files: CheckpointFiles | None

    @property
    def stored_dtype(self) -> str | None:
        """That of the base."""
        return None if self.base_files is None else self.base_files.stored_dtype

    @property
    def max_length(self) -> int | None:
        """That of the base."""
        return None if self.base_files is None else self.base_files.max_length

    @property
    def weight_bytes(self) -> int:
        """Size of the weights' files, those of the base included if they are here."""
        base = 0 if self.base_files is None else self.base_files.weight_bytes
        return base + (self.path / WEIGHTS).stat().st_size

    @property
    def embedding_rows(self) -> int | None:
        """Rows of the whole input embedding that the adapter brings along; None if it does not."""
        rows = [
            shape[0]
            for name, shape in self.shapes.items()
            if EMBEDDINGS.search(name) and name.endswith(".weight") and ".lora_" not in name
        ]
        return max(rows, default=None)

    @property
    def vocabulary(self) -> int | None:
        """Token ids of the model that comes out."""
        base = None if self.base_files is None else self.base_files.vocabulary
        return self.embedding_rows or base

    @property
    def tokenizer(self) -> str:
        """Where the tokenizer is, if none is named: with the adapter, or else with the base."""
        own = has_tokenizer(self.path)
        return str(self.path if own or self.base_files is None else self.base_files.path)

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 over the contents of base and adapter."""
        base = "" if self.base_files is None else self.base_files.fingerprint
        files = [self.path / name for name in (WEIGHTS, CONFIG, "tokenizer.json")]
        return sha256(f"{base}\0{fingerprint(files)}".encode()).hexdigest()


def read_adapter(path: Path, base_model: str | None) -> AdapterFiles:
    """Check the adapter's own files and find its base, which is not looked at yet.

    `base_model` is a folder or a Hub id that goes before what the adapter names.

    Raises:
        CheckpointError: weights are missing, pickled or cut short, the kind of adapter cannot be
            merged, or the base is nowhere.
        UsageError: peft is not installed.
    """
    file = path / CONFIG
    config = read_json(file)
    kind = str(config.get("peft_type"))
    _refuse_kinds(file, kind, config)
    if not (path / WEIGHTS).is_file():
        pickled = (path / "adapter_model.bin").is_file()
        raise CheckpointError(
            f"{path}: no {WEIGHTS}"
            + (
                ", only adapter_model.bin, a pickle, which is never opened; load it with peft where"
                " you trust it, and save_pretrained writes it as safetensors"
                if pickled
                else "; copy the whole folder again"
            )
        )
    header = read_header(path / WEIGHTS)
    foreign = [name for name, entry in header.items() if entry["dtype"] not in DTYPES]
    if foreign:
        raise CheckpointError(f"{path / WEIGHTS}: {foreign[0]} is quantised; merge it elsewhere")
    if find_spec("peft") is None:
        raise UsageError(
            f"{path}: a PEFT adapter, which needs peft; run: pip install 'ragen-diag[peft]'"
        )
    base, revision = _find_base(path, config, base_model)
    rank = config.get("r")
    return AdapterFiles(
        path=path,
        kind=kind,
        rank=rank if isinstance(rank, int) else None,
        shapes={name: tuple(entry["shape"]) for name, entry in header.items()},
        base=base,
        base_revision=revision,
        base_files=None,
    )


def has_tokenizer(path: Path) -> bool:
    """Whether the folder has a tokenizer of its own."""
    return any(True for name in TOKENIZER_FILES for _ in path.glob(name))


def _refuse_kinds(file: Path, kind: str, config: Mapping[str, Any]) -> None:
    task = config.get("task_type")
    if task not in (None, "CAUSAL_LM"):
        raise CheckpointError(
            f"{file}: an adapter for {task}, which is no causal language model; give the policy's"
        )
    if kind not in MERGEABLE:
        raise CheckpointError(
            f"{file}: an adapter of kind {kind}, which cannot be merged here; merge it where it was"
            " trained and give the whole model"
        )
    named = [key for key in LOADS_MORE if config.get(key)]
    if named:
        raise CheckpointError(
            f"{file}: {named[0]} makes peft read what the file names, which is never done here;"
            " merge the adapter where it was trained and give the whole model"
        )


def _find_base(
    path: Path, config: Mapping[str, Any], base_model: str | None
) -> tuple[Located, str | None]:
    """Where the base is, and its revision if it is on the Hub."""
    if base_model is not None:
        return _located(base_model, f"--base-model {base_model}"), None
    name = config.get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise CheckpointError(
            f"{path}: a PEFT adapter that does not name its base; name it with --base-model"
        )
    homes = [path.absolute(), *path.absolute().parents][: LEVELS_UP + 1]
    for place in (Path(name).expanduser(), *(home / name for home in homes)):
        if place.is_dir() and place.resolve() != path.resolve():
            return _located(str(place), f"{path}: the base that the adapter names"), None
    if HUB_ID.fullmatch(name):
        revision = config.get("revision")
        return Located(None, name, f"Hub id {name}", None), revision or None
    raise CheckpointError(
        f"{path}: a PEFT adapter on {name}, which is not here; name the folder or the Hub id of its"
        " base with --base-model"
    )


def _located(place: str, what: str) -> Located:
    try:
        return locate(place, [])
    except CheckpointError as error:
        raise CheckpointError(f"{what}: {error}") from error
