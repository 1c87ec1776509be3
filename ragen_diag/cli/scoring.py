"""Options of every command that scores, and the values that they make."""

import math
from typing import Annotated, Literal

import typer

from ragen_diag.errors import UsageError
from ragen_diag.settings import DtypeChoice, PromptFormat, ReasoningTags, Scope

MODEL = "Model"
OUTPUT = "Output"
STATISTICS = "Statistics"

PlotFormat = Literal["svg", "png"]

ScopeOption = Annotated[
    str,
    typer.Option(
        help="Turns of each trajectory: first_turn, turn_K (number K), or trajectory_uniform"
        " (one drawn by --seed). Responses are told apart within a turn only."
    ),
]
TagsOption = Annotated[
    str,
    typer.Option(
        help="Tags around the reasoning, as OPEN,CLOSE; 'auto' finds them, 'none' scores the"
        " whole response."
    ),
]
PromptFormatOption = Annotated[
    PromptFormat,
    typer.Option(
        metavar="FORMAT",
        help="How prompts without token ids are taken: auto, raw or rendered text, messages"
        " through the chat template, or stripped (text that lost its special tokens). Ids of"
        " the dump come first in any case.",
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=2, help="Use at most N distinct prompts, drawn by --seed."),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(rich_help_panel=MODEL, help="Tokenizer, if the checkpoint has none."),
]
DtypeOption = Annotated[
    DtypeChoice,
    typer.Option(
        rich_help_panel=MODEL,
        metavar="DTYPE",
        help="auto, float32, bfloat16, float16; auto is float32 on a CPU.",
    ),
]
DeviceOption = Annotated[
    str, typer.Option(rich_help_panel=MODEL, help="auto, cpu, cuda, cuda:1, mps.")
]
BatchTokensOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        rich_help_panel=MODEL,
        help="Tokens per forward pass; default: a fixed function of the model's shape.",
        show_default=False,
    ),
]
TemperatureOption = Annotated[
    float,
    typer.Option(min=1e-3, rich_help_panel=MODEL, help="Divides the logits before the softmax."),
]
ResamplesOption = Annotated[
    int,
    typer.Option(min=100, rich_help_panel=STATISTICS, help="Bootstrap resamples and permutations."),
]
SeedOption = Annotated[
    int, typer.Option(min=0, rich_help_panel=STATISTICS, help="Seed of every random draw.")
]
PlotFormatOption = Annotated[
    PlotFormat, typer.Option(rich_help_panel=OUTPUT, help="Format of the plot files.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="No progress.")
]


def parse_scope(text: str) -> Scope:
    """The scope that a text names.

    Raises:
        UsageError: it names none.
    """
    try:
        return Scope.parse(text)
    except ValueError as error:
        raise UsageError(f"--scope {error}") from error


def parse_tags(text: str) -> ReasoningTags:
    """The tags that a text names.

    Raises:
        UsageError: not of the form OPEN,CLOSE.
    """
    if text == "auto":
        return "auto"
    if text == "none":
        return "none"
    opening, comma, closing = text.partition(",")
    if not comma or not opening.strip() or not closing.strip():
        raise UsageError(
            f"--reasoning-tags {text!r}: give both tags as OPEN,CLOSE (for example"
            " '<think>,</think>'), or auto, or none"
        )
    return opening.strip(), closing.strip()


def finite_temperature(temperature: float) -> float:
    """The temperature itself.

    Raises:
        UsageError: it is no finite number.
    """
    if not math.isfinite(temperature):
        raise UsageError(f"--temperature {temperature}: give a finite number, such as 1.0")
    return temperature
