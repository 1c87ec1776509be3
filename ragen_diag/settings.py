"""Every choice a user can make about an analysis, as one frozen value. Knows no files, no torch.

The command line builds one `Settings`; `pipeline` takes it apart and hands each stage the two or
three values it needs. Nothing outside `pipeline` receives the whole.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

DtypeChoice = Literal["auto", "float32", "bfloat16", "float16"]
Compat = Literal["none", "ragen"]
ReasoningTags = tuple[str, str] | Literal["auto", "none"]
PromptFormat = Literal["auto", "raw", "rendered", "messages", "stripped"]
Reduce = Literal["sum", "last", "mean"]
DuplicateSteps = Literal["error", "first", "last", "merge"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a dump is to be read, where the dump itself does not say."""

    dialect: str | None = None
    """Name of the dialect; None recognises it by its columns."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Canonical column -> column of the dump (`--map response=output`)."""
    rewards: tuple[tuple[str, float], ...] = ()
    """Reward columns or components with their weights, to be summed; empty takes the dialect's own.
    `(("none", 1.0),)` reads the dump as one without rewards."""
    reward_key: str | None = None
    """Which value of a reward that is an object is the reward."""
    reward_reduce: Reduce | None = None
    """How a reward that is a list, or that differs from turn to turn of a trajectory, becomes one
    number; None takes "sum" and says so."""
    split: str | None = None
    """Only the rows of this split; None takes all, where a step does not mix several."""
    on_duplicate_step: DuplicateSteps = "error"
    """What becomes of a step that was written twice, as after a resume."""
    max_bad_share: float = 0.1
    """Largest share of lines or rewards that may be unreadable."""


@dataclass(frozen=True)
class Scope:
    """Which turns of every trajectory are analysed.

    "first_turn": the first one. "trajectory_uniform": one of its turns, drawn at random, so that
    long trajectories weigh no more than short ones. "turn": the one of number `turn`.
    """

    kind: Literal["first_turn", "trajectory_uniform", "turn"] = "first_turn"
    turn: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """The scope that `str` writes.

        Raises:
            ValueError: another text; the message names the words there are.

        >>> Scope.parse("turn_2"), str(Scope.parse("first_turn"))
        (Scope(kind='turn', turn=2), 'first_turn')
        """
        if text == "first_turn":
            return cls("first_turn")
        if text == "trajectory_uniform":
            return cls("trajectory_uniform")
        number = text.removeprefix("turn_")
        if number != text and number.isascii() and number.isdigit() and len(number) <= 9:
            return cls("turn", int(number))
        raise ValueError(
            f"{text!r}: give first_turn, trajectory_uniform, or turn_K with K = 0, 1, 2, ..."
        )

    def __str__(self) -> str:
        return self.kind if self.turn is None else f"turn_{self.turn}"


@dataclass(frozen=True)
class ScorerChoice:
    """Which checkpoint scores each step of a run.

    "own": the one of the very step, steps without one go unscored. "nearest": that, or else the
    nearest before. "fixed": `checkpoint` for all steps alike.
    """

    kind: Literal["own", "nearest", "fixed"] = "nearest"
    checkpoint: str | None = None

    @classmethod
    def parse(cls, text: str) -> "ScorerChoice":
        """The choice that `str` writes.

        Raises:
            ValueError: another text; the message names the words there are.

        >>> ScorerChoice.parse("fixed:step_0"), str(ScorerChoice.parse("own"))
        (ScorerChoice(kind='fixed', checkpoint='step_0'), 'own')
        """
        if text == "own":
            return cls("own")
        if text == "nearest":
            return cls("nearest")
        kind, colon, checkpoint = text.partition(":")
        if kind == "fixed" and colon and checkpoint:
            return cls("fixed", checkpoint)
        raise ValueError(f"{text!r}: give own, nearest, or fixed:CKPT")

    def __str__(self) -> str:
        return self.kind if self.checkpoint is None else f"fixed:{self.checkpoint}"


FIRST_TURN = Scope()
"""The headline: the prompts of later turns hold the model's own earlier reasoning."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Choices of one analysis; the defaults are what the command line shows."""

    step: int | None = None
    """Training step to analyse; None takes the checkpoint's, or the only one in the dump."""
    reading: Reading = Reading()
    scope: Scope = FIRST_TURN
    """Turns of the trajectories that are scored and measured."""
    reasoning_tags: ReasoningTags = "auto"
    """Open and close tag of the reasoning span; "none" scores the whole response."""
    prompt_format: PromptFormat = "auto"
    """How prompts that are no ids become some: "raw" and "rendered" text, "messages" through the
    chat template, or text "stripped" of its special tokens, which is read as messages again."""
    limit: int | None = None
    """Largest number of distinct prompts; a seeded subset is drawn when there are more."""
    revision: str | None = None
    """Branch, tag or commit of a checkpoint that is a Hub id."""
    tokenizer: str | None = None
    """Tokenizer folder or Hub id, when the checkpoint has none of its own."""
    base_model: str | None = None
    """Folder or Hub id of the model that an adapter changes; None takes the one that it names."""
    dtype: DtypeChoice = "auto"
    device: str = "auto"
    batch_tokens: int | None = None
    """Tokens in one forward pass; None takes a fixed function of the model's shape."""
    temperature: float = 1.0
    """Logits are divided by this before the softmax."""
    yardstick: bool = False
    """The checkpoint is one yardstick for several steps, and not the policy of the step: that it
    disagrees with the dump's log-probabilities is expected."""
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
        values = asdict(self) | {"scope": str(self.scope)}
        if isinstance(self.reasoning_tags, tuple):
            values["reasoning_tags"] = list(self.reasoning_tags)
        values["reading"] = {
            **values["reading"],
            "rewards": [list(weighted) for weighted in self.reading.rewards],
        }
        return values


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Choices of a post-mortem of a whole run, beside those for each of its steps."""

    scorer: ScorerChoice = ScorerChoice()
    history: tuple[str, ...] = ()
    """Scalar logs of the trainer: files, or folders of one."""
    every: int = 1
    """Every how-manieth step of the rollouts is analysed; the first and the last always are."""
    tokens: bool = False
    """Whether some responses are shown token by token."""
    step_minutes: float | None = None
    """What a training step takes, for the cost since the onset."""
    gpu_hour_cost: float | None = None
    gpus: int = 1

    def as_json(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return asdict(self) | {"scorer": str(self.scorer), "history": list(self.history)}
