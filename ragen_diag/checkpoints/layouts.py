"""What kind of checkpoint a folder is, judged by its files alone: usable, or how to make it so.

Only Hugging Face folders with safetensors are loaded. Every other layout that trainers write is
recognised by name, as a loader's own message about it ("no file named model.safetensors") does
not say what to do. Imports no torch and opens no pickle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ragen_diag.checkpoints.folder import CheckpointFiles, read_folder
from ragen_diag.errors import CheckpointError


@dataclass(frozen=True)
class Layout:
    """A layout that is not loaded as it stands: how it is recognised and what turns it into one
    that is. `found` gives the place that was recognised, or None."""

    name: str
    found: Callable[[Path], Path | None]
    remedy: Callable[[Path], str]


def inspect(path: Path, *, tokenizer: str | None = None) -> CheckpointFiles:
    """The files of a checkpoint that can be loaded as it stands; cheap, as it reads headers alone.

    `tokenizer` is where the tokenizer comes from if not from the folder.

    Raises:
        CheckpointError: another layout, naming it and the way out; or a Hugging Face folder with
            something missing, cut short or not allowed (see `read_folder`).
    """
    if not path.is_dir():
        raise CheckpointError(_refused_file(path))
    loadable = any(not f.name.startswith("adapter_") for f in path.glob("*.safetensors"))
    for layout in LAYOUTS:
        place = layout.found(path)
        if place is not None and (not loadable or layout is PEFT):
            raise CheckpointError(f"{path}: {layout.name}; {layout.remedy(place)}")
    if not loadable:
        what = "a configuration but no weights" if (path / "config.json").is_file() else "no model"
        raise CheckpointError(
            f"{path}: holds {what}; give the folder with config.json and *.safetensors"
        )
    return read_folder(path, tokenizer=tokenizer)


def _refused_file(path: Path) -> str:
    if path.suffix == ".gguf":
        return f"{path}: {GGUF.name}; {GGUF.remedy(path)}"
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


def _fsdp_shards(folder: Path) -> Path | None:
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


def _merge_fsdp(place: Path) -> str:
    return (
        "merge the shards first: python -m verl.model_merger merge --backend fsdp "
        f"--local_dir {place} --target_dir OUT, then give OUT"
    )


def _merge_megatron(place: Path) -> str:
    return (
        "convert it first: python -m verl.model_merger merge --backend megatron "
        f"--local_dir {place} --target_dir OUT (verl), or convert_torch_dist_to_hf.py (slime), "
        "or convert_megatron_to_hf.py (NeMo-RL)"
    )


def _convert_dcp(place: Path) -> str:
    return (
        "convert it first: convert_dcp_to_hf.py (NeMo-RL), or accelerate merge-weights "
        f"{place} OUT, then save the model with save_pretrained"
    )


def _convert_deepspeed(place: Path) -> str:
    if place.name.startswith("global_step"):
        place = place.absolute().parent
    return (
        f"convert it first: python zero_to_fp32.py {place} OUT --safe_serialization, "
        "and copy config.json and the tokenizer's files to OUT"
    )


PEFT = Layout(
    "a PEFT adapter, not a whole model",
    _holding("adapter_config.json"),
    lambda place: (
        "merge it into its base first: "
        f"AutoPeftModelForCausalLM.from_pretrained({str(place)!r}).merge_and_unload()"
        ".save_pretrained(OUT), and save the tokenizer to OUT"
    ),
)
GGUF = Layout(
    "GGUF weights, which are quantised and not the policy that was trained",
    _holding("*.gguf"),
    lambda place: "give the Hugging Face checkpoint they were made from",
)
PICKLE = Layout(
    "pickled weights, which can run code when opened and are never opened",
    _holding("pytorch_model*.bin", "consolidated*.pth", "*.bin", "*.pt", "*.pth"),
    lambda place: (
        "convert them where you trust them: AutoModelForCausalLM.from_pretrained"
        "(DIR, use_safetensors=False).save_pretrained(OUT), and save the tokenizer to OUT"
    ),
)

LAYOUTS = (
    PEFT,
    Layout("verl FSDP shards", _fsdp_shards, _merge_fsdp),
    Layout(
        "a Megatron checkpoint",
        _holding(
            "common.pt", "iter_*/common.pt", "dist_ckpt", "model/dist_ckpt", "iter_*/mp_rank_*"
        ),
        _merge_megatron,
    ),
    Layout(
        "a DeepSpeed checkpoint",
        _holding("*zero_pp_rank_*", "mp_rank_*_model_states.pt", "global_step*/*zero_pp_rank_*"),
        _convert_deepspeed,
    ),
    Layout(
        "a torch distributed checkpoint (DCP)",
        _holding("*.distcp", ".metadata", "pytorch_model_fsdp_0/*.distcp"),
        _convert_dcp,
    ),
    Layout(
        "verl's huggingface folder, with configuration and tokenizer but no weights",
        _verl_huggingface,
        _merge_fsdp,
    ),
    GGUF,
    PICKLE,
)
"""In the order they are asked; the more telling file first, as most hold *.pt as well."""
