"""What the reports of a post-mortem are made from: the post-mortem, its series, and texts.

The pipeline builds a `Story`; the renderers read it. Knows no rendering and no measuring.
"""

from dataclasses import dataclass

from ragen_diag.postmortem.model import PostMortem, SampleRecord
from ragen_diag.postmortem.sweep import Sweep
from ragen_diag.timeline import Timeline


@dataclass(frozen=True, kw_only=True)
class GroupDetail:
    """One reward group of a step with some of its responses.

    `reward_var` is null below two rewards; `flat` says why the rewards do not vary, null where
    they do. `gap` is the mean of matched minus marginal, nats/response. `rows` are few of
    `responses`.
    """

    group_id: str
    prompt: str
    responses: int
    reward_mean: float | None
    reward_var: float | None
    flat: str | None
    gap: float | None
    rows: tuple[SampleRecord, ...]


@dataclass(frozen=True, kw_only=True)
class StepDetail:
    """One step to look into: why this one, and some of its groups out of `groups_in_all`."""

    step: int
    why: str
    groups_in_all: int
    groups: tuple[GroupDetail, ...]


@dataclass(frozen=True, kw_only=True)
class Story:
    """Everything that the reports of one run show."""

    postmortem: PostMortem
    timeline: Timeline
    details: tuple[StepDetail, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SweepStory:
    """Everything that the report of several runs shows, runs in the order given."""

    sweep: Sweep
    timelines: tuple[Timeline, ...]
