"""What kind of checkpoint a folder is, judged by its files alone: usable, or how to make it so.

Only Hugging Face folders with safetensors are loaded. Every other layout that trainers write is
recognised by name, as a loader's own message about it ("no file named model.safetensors") does
not say what to do. Imports no torch and opens no pickle.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ragen_diag.checkpoints import remedies
from ragen_diag.checkpoints.adapter import CONFIG, AdapterFiles, has_tokenizer, read_adapter
from ragen_diag.checkpoints.folder import CheckpointFiles, read_folder
from ragen_diag.checkpoints.gguf import GgufFiles, read_gguf
from ragen_diag.errors import CheckpointError, UsageError

Files = CheckpointFiles | AdapterFiles | GgufFiles
"""What can be loaded."""


@dataclass(frozen=True)
class Layout:
    """A layout that is not loaded as it stands: how it is recognised and what turns it into one
    that is. `found` gives the place that was recognised, or None."""

    name: str
    found: Callable[[Path], Path | None]
    remedy: Callable[[Path], str]


def inspect(path: Path, *, tokenizer: str | None = None, base_model: str | None = None) -> Files:
    """The files of a checkpoint that can be loaded; cheap, as it reads headers alone.

    `tokenizer` is where the tokenizer comes from if not from the checkpoint, `base_model` where an
    adapter's base is if not where the adapter says. A base on the Hub is left to be fetched.

    Raises:
        CheckpointError: another layout, naming it and the way out; or a checkpoint with something
            missing, cut short or not allowed (see `read_folder`, `read_adapter`, `read_gguf`).
        UsageError: a base for what is no adapter, or a library that must be installed.
    """
    if (path / CONFIG).is_file():
        return _adapter(path, tokenizer, base_model)
    if base_model is not None:
        raise UsageError(
            f"--base-model {base_model}: {path} is no PEFT adapter; leave the option out"
        )
    gguf = _only_gguf(path)
    if gguf is not None:
        return read_gguf(gguf, tokenizer=tokenizer)
    return _folder(path, tokenizer)


def on_base(adapter: AdapterFiles, base: Path, *, tokenizer: str | None = None) -> AdapterFiles:
    """The adapter with the files of its base, which is the folder `base`.

    Raises:
        CheckpointError: the base cannot be loaded; the message names the adapter as well.
    """
    if (base / CONFIG).is_file():
        raise CheckpointError(
            f"{adapter.path}: its base {base} is an adapter too; merge that first"
        )
    # The tokenizer may be the adapter's, and is asked of the base only if it has none.
    named = tokenizer or (str(adapter.path) if has_tokenizer(adapter.path) else None)
    try:
        return replace(adapter, base_files=_folder(base, named))
    except CheckpointError as error:
        raise CheckpointError(
            f"{adapter.path}: the base of this adapter, {error}; --base-model names another base"
        ) from error


def _adapter(path: Path, tokenizer: str | None, base_model: str | None) -> AdapterFiles:
    adapter = read_adapter(path, base_model)
    if adapter.base.path is None:
        return adapter
    return on_base(adapter, adapter.base.path, tokenizer=tokenizer)


def _only_gguf(path: Path) -> Path | None:
    """The GGUF file that was named, or that is all there is in the folder."""
    if path.suffix == ".gguf" and path.is_file():
        return path
    inside = list(path.iterdir()) if path.is_dir() else []
    return inside[0] if len(inside) == 1 and inside[0].suffix == ".gguf" else None


def _folder(path: Path, tokenizer: str | None) -> CheckpointFiles:
    if not path.is_dir():
        raise CheckpointError(_refused_file(path))
    loadable = any(not f.name.startswith("adapter_") for f in path.glob("*.safetensors"))
    for layout in LAYOUTS:
        place = layout.found(path)
        if place is not None and not loadable:
            raise CheckpointError(f"{path}: {layout.name}; {layout.remedy(place)}")
    if not loadable:
        what = "a configuration but no weights" if (path / "config.json").is_file() else "no model"
        raise CheckpointError(
            f"{path}: holds {what}; give the folder with config.json and *.safetensors"
        )
    return read_folder(path, tokenizer=tokenizer)


def _refused_file(path: Path) -> str:
    if path.suffix in (".bin", ".pt", ".pth", ".ckpt"):
        return f"{path}: {PICKLE.name}; {PICKLE.remedy(path)}"
    if path.exists():
        return f"{path}: a file; give the folder that holds config.json and *.safetensors"
    return f"{path}: no such folder"


def _holding(*patterns: str) -> Callable[[Path], Path | None]:
    """The folder itself if a file in it matches one of the patterns."""

    def found(folder: Path) -> Path | None:
        return folder if any(True for p in patterns for _ in folder.glob(p)) else None

    return found


def fsdp_shards(folder: Path) -> Path | None:
    """The folder with verl's shards: this one, its `actor`, or the one above `huggingface`."""
    above = [folder.absolute().parent] if folder.name == "huggingface" else []
    for place in (folder, folder / "actor", folder / "policy", *above):
        if any(True for _ in place.glob("model_world_size_*_rank_*.pt")):
            return place
    return None


def _verl_huggingface(folder: Path) -> Path | None:
    """The folder above verl's `huggingface`, which holds weights only if it was told to."""
    for place in (folder, folder / "huggingface", folder / "actor" / "huggingface"):
        if place.name == "huggingface" and (place / "config.json").is_file():
            return place.absolute().parent
    return None


GGUF = Layout(
    "GGUF weights, which are quantised and not the policy that was trained",
    _holding("*.gguf"),
    remedies.whole_gguf,
)
PICKLE = Layout(
    "pickled weights, which are never unpickled here",
    _holding("pytorch_model*.bin", "consolidated*.pth", "*.bin", "*.pt", "*.pth"),
    remedies.convert_pickle,
)

LAYOUTS = (
    Layout("verl FSDP shards", fsdp_shards, remedies.merge_fsdp),
    Layout(
        "a Megatron checkpoint",
        _holding(
            "common.pt", "iter_*/common.pt", "dist_ckpt", "model/dist_ckpt", "iter_*/mp_rank_*"
        ),
        remedies.merge_megatron,
    ),
    Layout(
        "a DeepSpeed checkpoint",
        _holding("*zero_pp_rank_*", "mp_rank_*_model_states.pt", "global_step*/*zero_pp_rank_*"),
        remedies.convert_deepspeed,
    ),
    Layout(
        "a torch distributed checkpoint (DCP)",
        _holding("*.distcp", ".metadata", "pytorch_model_fsdp_0/*.distcp"),
        remedies.convert_dcp,
    ),
    Layout(
        "verl's huggingface folder, with configuration and tokenizer but no weights",
        _verl_huggingface,
        remedies.without_weights,
    ),
    GGUF,
    PICKLE,
)
"""In the order they are asked; the more telling file first, as most hold *.pt as well."""
