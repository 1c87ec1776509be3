"""Files that were judged -> model and tokenizer in memory, by transformers and nothing made up.

Whatever a loader raises on a stranger's files becomes one line.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_diag.checkpoints.loading.libraries import told
from ragen_diag.checkpoints.weights import judge_weights
from ragen_diag.errors import CheckpointError

UNBOUNDED = 10**30
"""No limit of tokens, the way transformers itself writes it."""


def load_model(
    path: Path, *, dtype: str, device: str, gguf: str | None = None
) -> tuple[Any, tuple[str, ...]]:
    """The model of a folder, or of the GGUF file of that name in it, ready to score.

    Gives words on what was left out as well.

    Raises:
        CheckpointError: it cannot be loaded, or weights are missing, unused or of another shape.
    """
    options: dict[str, Any] = {} if gguf is None else {"gguf_file": gguf}
    if device == "meta" and find_spec("accelerate") is not None:
        options["device_map"] = "meta"
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(path),
            **options,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=gguf is None,
            # Not to use them, but to have them in `info`: the loader's own error names none.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        model, info = loaded
        model = model.to(device).eval().requires_grad_(False)
    # A third party's code on a stranger's files: what it raises is not listed anywhere and differs
    # from model to model (StrictDataclassError, ZeroDivisionError, TypeError, ...).
    except Exception as error:
        raise CheckpointError(
            f"{path}: can't be loaded ({told(error)}); check its config.json, or copy the "
            "checkpoint again"
        ) from error
    return model, judge_weights(path, info)


def check_weights(path: Path) -> tuple[str, ...]:
    """Hold the weights of a folder against its configuration, without keeping any in memory.

    Gives words on what would be left out.

    Raises:
        CheckpointError: as `load_model`.
    """
    return load_model(path, dtype="float32", device="meta")[1]


def load_tokenizer(source: str) -> Any:
    """The tokenizer of a folder, of a GGUF file, or of a Hub id.

    Raises:
        CheckpointError: it cannot be loaded.
    """
    is_local = Path(source).exists()
    place, gguf = source, {}
    if source.endswith(".gguf") and is_local:
        place, gguf = str(Path(source).parent), {"gguf_file": Path(source).name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            place, local_files_only=is_local, trust_remote_code=False, **gguf
        )
    # As in `_load_model`; the tokenizers library raises bare `Exception`.
    except Exception as error:
        advice = "copy tokenizer.json and the other JSON files again" if is_local else "check it"
        raise CheckpointError(
            f"tokenizer {source}: can't be loaded ({told(error)}); {advice}, or give another "
            "with --tokenizer"
        ) from error
    # Else it warns on the terminal of texts that are too long for the model, which are left out
    # and counted elsewhere.
    tokenizer.model_max_length = UNBOUNDED
    return tokenizer
