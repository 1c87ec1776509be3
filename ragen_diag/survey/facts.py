"""What a survey says of a dump: the contract of `validate --json`.

Shares are 0..1. What the dump does not tell is None or empty. Knows no files and no wording.
"""

import json
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ragen_diag.metrics.reward import Bucket

Severity = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Most serious first."""
MOST_PLACES = 3


class _Fact(BaseModel):
    """Frozen, complete and finite: an unknown key or a NaN is a bug, not data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Problem(_Fact):
    """Something to know before the dump is analysed; with an "error" it would be refused."""

    code: str
    severity: Severity
    message: str = Field(description="what, where, and what to do, on one line")
    places: tuple[str, ...] = Field(default=(), description="the first few, as FILE row N")


def problem(
    code: str, severity: Severity, message: str, places: tuple[str, ...] | list[str] = ()
) -> Problem:
    """A problem with its first places."""
    return Problem(
        code=code, severity=severity, message=message, places=tuple(places[:MOST_PLACES])
    )


class RowGroups(_Fact):
    """The row groups of a Parquet file: what is held in memory at once is about one of them."""

    number: int
    most_rows: int
    most_bytes: int = Field(description="uncompressed")


class File(_Fact):
    """One file of the dump."""

    path: str
    container: str
    rows: int
    row_groups: RowGroups | None


class Step(_Fact):
    """One training step. A trajectory counts once, by its first turn, except in `rows`."""

    step: int | None
    rows: int
    prompts: int
    groups: int
    compared_groups: int = Field(description="groups of two rewards or more")
    flat_groups: int = Field(description="those of them whose rewards are equal")
    rewards: int = Field(description="rewards that are numbers")
    reward_mean: float | None


class Absence(_Fact):
    """A column, or a component of the reward, that holds values in some files or steps alone."""

    name: str
    of: Literal["file", "step"]
    present: int
    absent: int
    absent_in: tuple[str, ...] = Field(description="the first twenty")


class GroupSizes(_Fact):
    """Trajectories per group; `usual` is the commonest size."""

    smallest: int
    median: float
    largest: int
    usual: int
    uneven: int = Field(description="groups of another size than the usual one")
    singletons: int
    sizes: Mapping[str, int] = Field(description="size -> number of groups")
    with_several_prompts: int
    prompts_in_several: int = Field(description="prompts with more than one group in their step")


class Texts(_Fact):
    """How many texts differ, over all rows."""

    distinct_responses: int
    distinct_share: float | None
    one_text_groups: int = Field(description="groups of several whose responses are all one text")
    exact_copies: int = Field(description="rows that equal an earlier one of their step")


class Component(_Fact):
    """A component of the reward."""

    name: str
    rows: int = Field(description="rows that have it")
    share: float


class Reward(_Fact):
    """The reward that was read, and how."""

    name: str | None = Field(description="the column, or the sum of columns, that was read")
    type: str | None = Field(description="its type in the first file")
    how: tuple[str, ...] = Field(description="what was done to make it one number")
    numbers: int
    missing: Mapping[str, int] = Field(description="rows without a number, by reason")
    candidates: tuple[str, ...]
    components: tuple[Component, ...]
    mean: float | None
    min: float | None
    max: float | None
    share_at_min: float | None
    share_at_max: float | None


class Variance(_Fact):
    """Reward differences within groups, over all steps; see `metrics.reward`."""

    groups: int
    compared: int = Field(description="groups of two rewards or more")
    flat: int = Field(description="those of them whose rewards are equal")
    flat_share: float | None = Field(description="of `compared`")
    unscored: int = Field(description="groups without a reward")
    singleton: int = Field(description="groups of one reward")
    in_group_reward_var: float | None
    buckets: tuple[Bucket, ...] = Field(description="the groups that vary, Q1 lowest variance")


class Quantiles(_Fact):
    """Numbers of tokens."""

    median: int
    p99: int
    max: int


class Sample(_Fact):
    """What a seeded sample of rows says; the texts of the others were not kept."""

    rows: int
    tags: str | None
    tags_reason: str
    spans: Mapping[str, int] = Field(description="rows by state of their reasoning span")
    lengths_by: str = Field(description="what counted the tokens, or why nothing did")
    prompt_tokens: Quantiles | None
    response_tokens: Quantiles | None
    total_tokens: Quantiles | None


class Truncation(_Fact):
    """Responses that ended at the length cap."""

    how: str
    share: float | None
    finish_reasons: Mapping[str, int]


class Checkpoint(_Fact):
    """A checkpoint's files, by their headers alone."""

    found: str
    path: str | None
    step: int | None
    stored_dtype: str | None
    weight_bytes: int | None
    vocabulary: int | None = Field(description="token ids that the model has, from config.json")
    largest_token_id: int | None = Field(description="of the tokenizer")
    context: int | None = Field(description="positions; null where unlimited or unknown")


class Survey(_Fact):
    """What is in a dump, and whether it is usable."""

    schema_version: Literal[1] = 1
    paths: tuple[str, ...]
    usable: bool = Field(description="whether an analysis would accept it")
    dialect: str | None = None
    certainty: str | None = None
    grounds: str | None = None
    rows: int = 0
    trajectories: int = 0
    turns: int = Field(default=0, description="the largest number of rows of one trajectory")
    prompts: int = Field(default=0, description="distinct ones, over all steps")
    groups: int = 0
    group_source: Mapping[str, int] = Field(
        default={}, description="rows by the way their group was found"
    )
    steps: tuple[int | None, ...] = Field(default=(), description="in ascending order")
    splits: Mapping[str, int] = Field(default={}, description="split -> rows")
    problems: tuple[Problem, ...]
    files: tuple[File, ...] = ()
    files_passed_over: Mapping[str, str] = {}
    per_step: tuple[Step, ...] = ()
    absences: tuple[Absence, ...] = ()
    group_sizes: GroupSizes | None = None
    texts: Texts | None = None
    reward: Reward | None = None
    reward_variance: Variance | None = None
    truncation: Truncation | None = None
    sample: Sample | None = None
    checkpoint: Checkpoint | None = None
    reading_notes: Mapping[str, int] = Field(
        default={}, description="repairs and drops at reading, by reason"
    )

    def to_json(self) -> str:
        """The survey as strict JSON text with a final newline."""
        return json.dumps(self.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"
