"""The place of a checkpoint that is not loaded as it stands -> the exact command that converts it.

Commands are made to be copied: paths are filled in and quoted for a shell; OUT stands for a folder
of the reader's choice. Opens no file, and knows no layout's looks.
"""

from pathlib import Path
from shlex import quote

OURS = "ragen-diag convert-ckpt"
BESIDE = "copy config.json and the tokenizer's files of the base to OUT"


def merge_fsdp(place: Path) -> str:
    """Shards of verl and its kin: ours, or verl's, of which runs before fsdp_config.json need the
    older one."""
    shards = any(True for _ in place.glob("model_world_size_*"))
    is_old = shards and not (place / "fsdp_config.json").is_file()
    merger = "python scripts/legacy_model_merger.py" if is_old else "python -m verl.model_merger"
    return (
        f"merge them first: {OURS} {_(place)} OUT, or with verl: {merger} merge --backend fsdp"
        f" --local_dir {_(place)} --target_dir OUT; then give OUT"
    )


def without_weights(place: Path) -> str:
    """verl's `huggingface` folder, copied without the shards that should be above it."""
    return (
        f"if there are shards in {place}, {merge_fsdp(place)}; if not, bring them, or train with"
        " hf_model among checkpoint.save_contents"
    )


def merge_megatron(place: Path) -> str:
    """verl keeps `dist_ckpt` below the place; slime, NeMo-RL and others the files themselves."""
    if (place / "dist_ckpt").is_dir() or (place / "model" / "dist_ckpt").is_dir():
        return (
            "convert it first: python -m verl.model_merger merge --backend megatron"
            f" --local_dir {_(place)} --target_dir OUT; then give OUT"
        )
    inside = sorted(place.glob("iter_*/"))
    newest = inside[-1] if inside else place
    return (
        f"convert it first: python tools/convert_torch_dist_to_hf.py --input-dir {_(newest)}"
        " --output-dir OUT --origin-hf-dir BASE (slime), or python"
        " examples/converters/convert_megatron_to_hf.py --config CONFIG"
        f" --megatron-ckpt-path {_(newest)} --hf-ckpt-path OUT (NeMo-RL); then give OUT"
    )


def convert_dcp(place: Path) -> str:
    """Its index is a pickle, so that it is torch that has to open it."""
    inner = place / "pytorch_model_fsdp_0"
    if inner.is_dir():
        return f"convert it first: accelerate merge-weights {_(inner)} OUT; {BESIDE}; then give OUT"
    config = place.absolute().parent.parent / "config.yaml"
    if place.name == "weights" and config.is_file():
        return (
            f"convert it first: python examples/converters/convert_dcp_to_hf.py --config"
            f" {_(config)} --dcp-ckpt-path {_(place)} --hf-ckpt-path OUT (NeMo-RL); then give OUT"
        )
    return (
        "convert it first where you trust it: python -m torch.distributed.checkpoint.format_utils"
        f" dcp_to_torch {_(place)} OUT.pt, then {OURS} OUT.pt OUT --config-from BASE; then give OUT"
    )


def convert_deepspeed(place: Path) -> str:
    """The script lies beside `latest`, one above the folder of the step."""
    tag = ""
    if place.name.startswith("global_step"):
        tag = f" --tag {_(place.name)}"
        place = place.absolute().parent
    script = place / "zero_to_fp32.py"
    run = f"python {_(script)}" if script.is_file() else "python -m deepspeed.utils.zero_to_fp32"
    return (
        f"convert it first where you trust it: {run} {_(place)} OUT --safe_serialization{tag};"
        f" {BESIDE}; then give OUT"
    )


def convert_pickle(place: Path) -> str:
    """Plain tensors come back without any code being run; other objects are refused then too."""
    return f"convert them first, which runs no code of theirs: {OURS} {_(place)} OUT; then give OUT"


def whole_gguf(place: Path) -> str:
    """Scored only if it is named itself."""
    return (
        "give the Hugging Face checkpoint they were made from, or one .gguf file itself to have it"
        " scored with a warning"
    )


def _(path: Path | str) -> str:
    return quote(str(path))
