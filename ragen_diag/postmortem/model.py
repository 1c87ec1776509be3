"""The post-mortem of one run: the JSON contract behind its reports.

Strict JSON, byte-equal for equal inputs except for `run`. Knows no wording and no rendering.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, JsonValue

from ragen_diag.result import CheckpointInput, DumpInput, Part, Tool

SCHEMA_VERSION = 1

Kind = Literal["none", "sudden", "gradual", "unclear", "lost", "too_few"]
Confidence = Literal["clear", "likely", "possible"]

NOTHING = "no_onset"
UNEXPLAINED = "unexplained_onset"
NOT_JUDGED = "could_not_judge"
"""Verdicts that are no signature."""


class Coverage(Part):
    """How a scalar log was joined with the steps of the rollouts: by step, never by position."""

    path: str
    kind: str
    names: int
    matched: int = Field(description="steps in the log and in the rollouts")
    only_in_log: int
    only_in_rollouts: tuple[int, ...]
    restarts: tuple[int, ...] = Field(description="steps at which the log begins again")
    left_out: Mapping[str, int]


class RunInputs(Part):
    """Everything that the post-mortem depends on."""

    run: str
    dump: DumpInput
    scorer: str = Field(description="own, nearest or fixed:CKPT")
    checkpoints: tuple[CheckpointInput, ...]
    history: tuple[Coverage, ...]
    settings: Mapping[str, JsonValue]


class StepSummary(Part):
    """One step in one line."""

    step: int
    regime: str
    candidates: tuple[str, ...]
    scorer_step: int | None
    lag: int | None = Field(description="0: scored by the policy that sampled; null: a yardstick")
    rows: int
    scored_rows: int
    prompts: int
    unscored: str | None = Field(description="why nothing was scored")
    findings: Mapping[str, str] = Field(description="code -> severity")


class MarksRecord(Part):
    """Steps at which something other than learning happened."""

    resumes: tuple[int, ...]
    scorer_changes: tuple[int, ...]
    gaps: tuple[tuple[int, int], ...]


class OnsetRecord(Part):
    """When one quantity left the level that it had, in one direction.

    With 95 % confidence after `last_good`, and at or before `first_bad`; null without an onset.
    """

    metric: str
    direction: Literal[-1, 0, 1] = Field(description="movement looked for; 0: either")
    alarm: bool = Field(description="whether this movement is bad news by itself")
    kind: Kind
    last_good: int | None
    first_bad: int | None
    ends: int | None = Field(description="step at which the new level is reached, best fit")
    before: float | None
    after: float | None
    unit: str
    p_value: float | None
    odd_steps: tuple[int, ...]
    material: Mapping[str, float] = Field(description="least change that counts")
    source: str = Field(description="where that comes from")
    steps: int = Field(description="steps at which the quantity is defined")
    reason: str | None = None
    caution: str | None = Field(default=None, description="what else changed at that time")

    @property
    def happened(self) -> bool:
        """Whether there is an onset."""
        return self.kind not in ("none", "too_few")


class LeadRecord(Part):
    """How many steps one onset came before another; negative if it came after."""

    first: str
    second: str
    steps: float | None
    low: float | None
    high: float | None
    probability: float | None = Field(description="that the first did come first")


class CorrelationRecord(Part):
    """Rank correlation over steps."""

    metric: str
    other: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    effective_n: float | None
    paper: str | None = Field(description="RAGEN-2, Fig. 8, across runs; null where it has none")
    reason: str | None


class Signature(Part):
    """A known way in which runs go wrong, with what speaks for and against it here."""

    code: str
    confidence: Confidence
    last_good: int | None
    first_bad: int | None
    evidence: tuple[str, ...]
    against: tuple[str, ...]


class Cost(Part):
    """What was spent since the first bad step of the earliest alarm."""

    since_step: int
    steps: int
    hours: float | None
    money: float | None


class PhraseRecord(Part):
    """A phrase that came to be shared across prompts; shares are of responses and of prompts."""

    text: str
    share_before: float
    share_after: float
    prompts_before: float
    prompts_after: float


class SampleRecord(Part):
    """One response; log-probabilities in nats per response."""

    response_id: str
    prompt: str
    response: str
    start: int | None
    end: int | None
    reward: float | None
    gap: float | None = Field(description="matched minus marginal")


class PairRecord(Part):
    """Responses before and after, side by side.

    To the same prompt, or where the steps have other prompts the least or the most grounded ones
    of each: `prompt` is null then, and each sample has its own.
    """

    kind: Literal["same_prompt", "least_grounded", "most_grounded"]
    prompt: str | None
    before: tuple[SampleRecord, ...]
    after: tuple[SampleRecord, ...]
    gap_before: float | None
    gap_after: float | None


class TokenRecord(Part):
    """One response, token by token: how much each tells of the prompt, in nats."""

    step: int
    response_id: str
    prompt: str
    tokens: tuple[str, ...]
    pointwise_mi: tuple[float, ...]


class Texts(Part):
    """What changed in the texts between two steps; `why` these two."""

    why: str

    step_before: int
    step_after: int
    same_prompts: bool = Field(description="whether prompts of both steps could be matched")
    phrases: tuple[PhraseRecord, ...]
    pairs: tuple[PairRecord, ...]
    tokens: tuple[TokenRecord, ...] = ()


class PostMortem(Part):
    """The story of one run."""

    schema_version: Literal[1] = 1
    tool: Tool = Tool()
    inputs: RunInputs
    verdict: str = Field(description="code of the first signature, or why there is none")
    confidence: Confidence | None
    signatures: tuple[Signature, ...]
    onsets: tuple[OnsetRecord, ...]
    leads: tuple[LeadRecord, ...]
    correlations: tuple[CorrelationRecord, ...]
    marks: MarksRecord
    steps: tuple[StepSummary, ...]
    cost: Cost | None
    texts: tuple[Texts, ...] = Field(
        description="before the onset against its first bad step, and against the end of the run"
    )
    run: Mapping[str, JsonValue]

    def to_json(self) -> str:
        """The post-mortem as strict JSON text with a final newline."""
        return json.dumps(self.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `postmortem.json`."""
    schema = PostMortem.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
