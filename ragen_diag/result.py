"""The result of one analysis: the JSON contract that every report, gate and comparison reads.

Comes in: what the stages measured. Goes out: `result.json`, strict JSON, byte-equal for equal
inputs except for `run`. Knows no tables, no models and no wording.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ragen_diag import __version__
from ragen_diag.errors import ResultError
from ragen_diag.judging.findings import Finding
from ragen_diag.judging.regimes import Regime
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.reward import RewardSignal

SCHEMA_VERSION = 1
"""Raised when a reader of the old form would misread the new one."""


class Part(BaseModel):
    """Frozen, complete and finite: an unknown key or a NaN is a bug, not data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Tool(Part):
    """What wrote the result."""

    name: Literal["ragen-diag"] = "ragen-diag"
    version: str = __version__


class DumpInput(Part):
    """The rollout dump that was read."""

    paths: tuple[str, ...]
    dialect: str
    rows: int = Field(description="rows of the analysed step")
    sha256: str | None
    step: int | None
    group_source: Mapping[str, int] = Field(description="rows by the way their group was found")
    notes: Mapping[str, int] = Field(description="repairs and drops at reading, by reason")


class CheckpointInput(Part):
    """The checkpoint that scored the rollouts."""

    path: str
    found: str = Field(description="how the name given was resolved")
    revision: str | None
    fingerprint: str
    stored_dtype: str
    dtype: str
    device: str
    reason: str = Field(description="why this dtype and device")
    step: int | None
    notes: tuple[str, ...] = Field(default=(), description="what else was met on loading")


class Spans(Part):
    """Which part of a response was taken as reasoning."""

    open: str | None
    close: str | None
    prefilled: bool
    reason: str
    counts: Mapping[str, int] = Field(description="responses by state of their reasoning span")


class PromptFormats(Part):
    """A few rows scored with their prompts in several formats."""

    used: str
    rows: int
    logp_per_token: Mapping[str, float] = Field(
        description="mean over rows of log p(Z|X) / length by format, nats/token"
    )
    best: str
    gain: float = Field(description="the best format's minus the used one's, nats/token")
    standard_error: float | None = Field(description="of the gain, over rows")
    look_stripped: int = Field(
        description="rows whose prompt is a chat of the template without its special tokens"
    )


class Scoring(Part):
    """How the cross-scores were computed, and how far they can be trusted."""

    path: str = Field(description="which scorer ran")
    batch_tokens: int
    temperature: float
    noise_per_token: float = Field(description="largest difference seen in the probe, nats/token")
    noise_per_response: float = Field(description="the same in nats per response")
    probe_pairs: int
    rows_within_noise: float | None = Field(
        default=None,
        description="share of rows whose two best prompts differ by less than the noise",
    )
    from_ids: int = Field(description="rows whose token ids came from the dump")
    retokenised: int = Field(description="rows whose text was encoded again")
    note: str | None = None
    prompt_forms: Mapping[str, int] = Field(
        default={}, description="scored rows by what their prompt was taken from"
    )
    prompt_formats: PromptFormats | None = Field(
        default=None, description="null where the format of the prompts is not in doubt"
    )
    against_template: Mapping[str, int] = Field(
        default={},
        description="rows with messages and a prompt, by what differs under the chat template",
    )
    round_trips: int = Field(
        default=0, description="rows from_ids whose response decoding and encoding gives back"
    )
    replacements: int = Field(default=0, description="rows with U+FFFD in the response")
    double_bos: int = Field(default=0, description="rows whose prompt begins with the BOS twice")
    logprobs_lacking: Mapping[str, int] = Field(
        default={}, description="rows by what they lack of the dump's log-probabilities"
    )


class Inputs(Part):
    """Everything the numbers depend on."""

    dump: DumpInput
    checkpoint: CheckpointInput | None
    spans: Spans
    scoring: Scoring | None
    settings: Mapping[str, JsonValue]


class Counts(Part):
    """How many rows, and how many were left out for which reason."""

    rows: int
    scored_rows: int
    prompts: int
    groups: int
    excluded: Mapping[str, int]


class Result(Part):
    """One step, measured and judged."""

    schema_version: Literal[1] = 1
    tool: Tool = Tool()
    inputs: Inputs
    counts: Counts
    metrics: Mapping[str, Metric]
    reward: RewardSignal
    regime: Regime
    findings: tuple[Finding, ...]
    run: Mapping[str, JsonValue] = Field(description="timestamps, timings and versions")

    def to_json(self) -> str:
        """The result as strict JSON text with a final newline."""
        return json.dumps(self.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"


def read_result(path: str | Path) -> Result:
    """Load a `result.json`.

    Raises:
        ResultError: no such file, not JSON, not a result, or of another schema version.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ResultError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ResultError(f"{path}: not a text; give a result.json") from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: not JSON ({error}); give a result.json") from error
    version = value.get("schema_version") if isinstance(value, dict) else None
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ResultError(
            f"{path}: schema version {version!r}, this ragen-diag reads {SCHEMA_VERSION};"
            " analyse the run again"
        )
    try:
        return Result.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ResultError(f"{path}: not a result ({where}: {first['msg']})") from error


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `result.json`."""
    schema = Result.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
