"""The files of a Hugging Face checkpoint folder, checked and fingerprinted before torch starts.

Minutes of loading end in a riddle when a shard was cut short or a file is a Git LFS pointer; here
they end at once, in one line. Reads safetensors headers, never tensors, and no pickle.
"""

import hashlib
import json
import math
import reprlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ragen_diag.checkpoints.headers import read_header, refuse_pointer
from ragen_diag.errors import CheckpointError

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "tekken.json",
    "*.tiktoken",
)
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
CAUSAL_HEADS = ("ForCausalLM", "LMHeadModel")
INDEX = "model.safetensors.index.json"
KINDS: dict[str, type | tuple[type, ...]] = {
    "an object": dict,
    "a list": list,
    "a whole number": int,
    "a number": (int, float),
}


@dataclass(frozen=True)
class CheckpointFiles:
    """A folder that can be loaded as it stands.

    `stored_dtype` is that of most weight bytes. `max_length` is the largest number of positions,
    None where the model has no such limit. `vocabulary` is the number of token ids, None where
    config.json does not name it.
    """

    path: Path
    weights: tuple[Path, ...]
    stored_dtype: str
    max_length: int | None
    vocabulary: int | None

    @property
    def weight_bytes(self) -> int:
        """Size of the weights' files."""
        return sum(file.stat().st_size for file in self.weights)

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 over names, sizes and contents of weights, config.json and tokenizer.json.

        Reads every byte on first use, so that the checks alone stay cheap.
        """
        others = (self.path / "config.json", self.path / "tokenizer.json")
        return fingerprint([*self.weights, *others])


def read_folder(path: Path, *, tokenizer: str | None = None) -> CheckpointFiles:
    """Check every file that loading will need, by headers alone.

    Raises:
        CheckpointError: config.json, a shard or the tokenizer is missing; a file is empty, cut
            short, malformed or a Git LFS pointer; the model asks for remote code, is quantised, or
            is no text-only causal language model.
    """
    config = read_json(path / "config.json")
    _check_config(path, config)
    weights = _weights(path)
    headers = [read_header(file) for file in weights]
    _check_index(path, weights, headers)
    _check_tokenizer(path, tokenizer)
    return CheckpointFiles(
        path=path,
        weights=tuple(weights),
        stored_dtype=_stored_dtype(path, headers),
        max_length=_max_length(path / "config.json", config),
        vocabulary=_vocabulary(config),
    )


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; one that is missing or none is an error."""
    if not file.is_file():
        raise CheckpointError(
            f"{file.parent}: no {file.name} beside the weights; copy it from the base"
        )
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not readable as JSON ({error}); copy it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: holds no JSON object; copy it again")
    return value


def _field(file: Path, values: dict[str, Any], key: str, kind: str) -> Any:
    """The value of a key, None where it is absent; one that is not of its kind is an error."""
    value = values.get(key)
    if value is not None and not isinstance(value, KINDS[kind]):
        raise CheckpointError(
            f"{file}: {key} is {reprlib.repr(value)}, not {kind}; copy the file again"
        )
    return value


def _check_config(path: Path, config: dict[str, Any]) -> None:
    file = path / "config.json"
    _refuse_remote_code(file, config)
    heads = [str(name) for name in _field(file, config, "architectures", "a list") or ()]
    if any(key in config for key in ("vision_config", "audio_config")):
        raise CheckpointError(
            f"{path}: a vision or audio language model ({', '.join(heads)}); its placeholders are "
            "not what it saw, so it is not scored; leave --ckpt out for what needs no model"
        )
    if config.get("is_encoder_decoder") or (
        heads and not any(head.endswith(CAUSAL_HEADS) for head in heads)
    ):
        raise CheckpointError(
            f"{path}: {', '.join(heads) or 'an encoder-decoder'} is no causal language model; "
            "give the policy's checkpoint, not that of a critic or reward model"
        )
    quantised = _field(file, config, "quantization_config", "an object")
    if quantised:
        method = quantised.get("quant_method", "unknown method")
        raise CheckpointError(
            f"{path}: quantised weights ({method}), not the policy that was trained; "
            "give the checkpoint they were made from"
        )


def _refuse_remote_code(file: Path, config: dict[str, Any]) -> None:
    if config.get("auto_map"):
        raise CheckpointError(
            f"{file}: asks for code of its own (auto_map), which is never run; "
            "if transformers knows the architecture by itself, take auto_map out of a copy"
        )


def _weights(path: Path) -> list[Path]:
    """The files that transformers will read: model.safetensors, else all that the index names."""
    single, index = path / "model.safetensors", path / INDEX
    if single.is_file():
        return [single]
    shards = sorted(path.glob("model-*-of-*.safetensors"))
    if not index.is_file():
        problem = f"{len(shards)} shards but no {index.name}" if shards else "no model.safetensors"
        raise CheckpointError(f"{path}: {problem}; copy the whole folder again")
    files = sorted(set(_weight_map(path).values()))
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise CheckpointError(
            f"{path}: {len(missing)} of {len(files)} shards named by {index.name} are missing"
            f"{': ' + missing[0] if missing else ''}; copy the whole folder again"
        )
    return files


def _weight_map(path: Path) -> dict[str, Path]:
    """Weight name -> its shard, as the index says."""
    names = _field(path / INDEX, read_json(path / INDEX), "weight_map", "an object") or {}
    if not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(
            f"{path / INDEX}: weight_map holds what is no file name; copy the file again"
        )
    return {weight: path / name for weight, name in names.items()}


def _check_index(path: Path, weights: list[Path], headers: list[dict[str, Any]]) -> None:
    if len(weights) == 1 and weights[0].name == "model.safetensors":
        return
    held = dict(zip(weights, headers, strict=True))
    lost = [name for name, file in _weight_map(path).items() if name not in held[file]]
    if lost:
        raise CheckpointError(
            f"{path}: {len(lost)} weights are not in the shards that the index names, first "
            f"{lost[0]}; shards of two checkpoints may be mixed: copy the whole folder again"
        )


def _check_tokenizer(path: Path, tokenizer: str | None) -> None:
    if tokenizer is not None:
        return
    files = [file for name in TOKENIZER_FILES for file in path.glob(name)]
    for file in files:
        refuse_pointer(file)
    if not files:
        raise CheckpointError(f"{path}: no tokenizer files; name the base model's with --tokenizer")
    if (path / "tokenizer.json").is_file():
        read_json(path / "tokenizer.json")
    if (path / "tokenizer_config.json").is_file():
        settings = read_json(path / "tokenizer_config.json")
        _refuse_remote_code(path / "tokenizer_config.json", settings)


def _stored_dtype(path: Path, headers: list[dict[str, Any]]) -> str:
    size: Counter[str] = Counter()
    for header in headers:
        for tensor in header.values():
            start, end = tensor["data_offsets"]
            size[tensor["dtype"]] += end - start
    name = size.most_common(1)[0][0]
    if name not in DTYPES:
        raise CheckpointError(
            f"{path}: weights are stored as {name}, which is quantised; "
            "give the checkpoint they were made from"
        )
    return DTYPES[name]


def _max_length(file: Path, config: dict[str, Any]) -> int | None:
    """Positions the model was made for; None for alibi and recurrent models."""
    if config.get("alibi"):
        return None
    lengths = [
        _field(file, config, key, "a whole number")
        for key in ("max_position_embeddings", "n_positions")
    ]
    length: int | None = lengths[0] or lengths[1] or None
    scalings = [
        _field(file, config, key, "an object") for key in ("rope_parameters", "rope_scaling")
    ]
    scaling = scalings[0] or scalings[1] or {}
    original = _field(file, scaling, "original_max_position_embeddings", "a whole number")
    factor = _field(file, scaling, "factor", "a number")
    if length and original and factor and math.isfinite(factor):
        # yarn as Qwen2.5 states it: the table's length is the original one, the factor stretches.
        return max(length, int(original * factor))
    return length


def _vocabulary(config: dict[str, Any]) -> int | None:
    size = config.get("vocab_size")
    return size if isinstance(size, int) and size > 0 else None


def fingerprint(files: Sequence[Path]) -> str:
    """A sha256 over names, sizes and contents of those files that are there."""
    digest = hashlib.sha256()
    for file in files:
        if not file.is_file():
            continue
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
