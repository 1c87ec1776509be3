"""Every choice a user can make about an analysis, as one frozen value. Knows no files, no torch.

The command line builds one `Settings`; `pipeline` takes it apart and hands each stage the two or
three values it needs. Nothing outside `pipeline` receives the whole.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

DtypeChoice = Literal["auto", "float32", "bfloat16", "float16"]
Compat = Literal["none", "ragen"]
ReasoningTags = tuple[str, str] | Literal["auto", "none"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Choices of one analysis; the defaults are what the command line shows."""

    step: int | None = None
    """Training step to analyse; None takes the checkpoint's, or the only one in the dump."""
    reward: str | None = None
    """Name of the reward column or component to use; None takes the dialect's own."""
    reasoning_tags: ReasoningTags = "auto"
    """Open and close tag of the reasoning span; "none" scores the whole response."""
    limit: int | None = None
    """Largest number of distinct prompts; a seeded subset is drawn when there are more."""
    revision: str | None = None
    """Branch, tag or commit of a checkpoint that is a Hub id."""
    tokenizer: str | None = None
    """Tokenizer folder or Hub id, when the checkpoint has none of its own."""
    dtype: DtypeChoice = "auto"
    device: str = "auto"
    batch_tokens: int | None = None
    """Padded tokens in one forward pass; None takes a fixed function of the model's shape."""
    temperature: float = 1.0
    """Logits are divided by this before the softmax."""
    compat: Compat = "none"
    """"ragen": per-token metrics by the public implementation's formula instead of Eq. 1."""
    resamples: int = 2000
    """Bootstrap resamples and random permutations."""
    seed: int = 0
    flat_atol: float = 1e-9
    flat_rtol: float = 1e-9
    """A group is flat when max - min <= atol + rtol * |mean|."""

    def as_json(self) -> dict[str, Any]:
        """The settings as plain JSON values, for the result."""
        values = asdict(self)
        if isinstance(self.reasoning_tags, tuple):
            values["reasoning_tags"] = list(self.reasoning_tags)
        return values
