"""A GGUF file -> a model in memory, with what is to be said of its weights and of its tokenizer."""

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from ragen_diag.checkpoints.gguf import GgufFiles
from ragen_diag.checkpoints.loading.models import load_model, load_tokenizer
from ragen_diag.errors import CheckpointError

TEXTS = (
    "The box is two steps to the left, so I push it right.",
    "17 + 25 = 42, and 3.14159 * 10^6 isn't an integer.",
    "  def step(x):\n\treturn x[1:]  # not the first\n\n",
    "<think>\nWait, let me check: Δ ≥ 0?\n</think>\n<answer>Up</answer>",
    "Größe, naïve, 数学, 🙂",
)
"""What tokenizers disagree on: spaces, digits, line ends, tags, other scripts."""


def load_dequantised(files: GgufFiles, *, dtype: str, device: str) -> tuple[Any, tuple[str, ...]]:
    """The model with all weights dequantised, and notes on what it is.

    Raises:
        CheckpointError: it cannot be loaded, or weights are missing or unused.
    """
    # It has a progress bar that nothing else turns off.
    with redirect_stderr(StringIO()):
        model, notes = load_model(
            files.path.parent, dtype=dtype, device=device, gguf=files.path.name
        )
    if not files.quantised:
        return model, notes
    warning = (
        f"GGUF weights quantised to {files.stored_dtype}: these are not the log-probs of the policy"
        " that was trained"
    )
    return model, (warning, *notes)


def compare_tokenizers(tokenizer: Any, source: str, files: GgufFiles) -> tuple[str, ...]:
    """A note on whether the named tokenizer encodes as the file's own; none if it is its own."""
    if Path(source).resolve() == files.path.resolve():
        return ()
    try:
        own = load_tokenizer(str(files.path))
    except CheckpointError as error:
        return (f"tokenizer not compared with that of the GGUF file: {error}",)
    differing = [text for text in TEXTS if _ids(tokenizer, text) != _ids(own, text)]
    if not differing:
        return (f"tokenizer encodes {len(TEXTS)} texts as that of the GGUF file does",)
    return (
        f"tokenizer encodes {len(differing)} of {len(TEXTS)} texts otherwise than that of the GGUF"
        f" file, first {differing[0]!r}; is it the one of this model?",
    )


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
