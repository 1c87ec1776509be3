"""`postmortem.html` and `sweep.html`: one file each, offline, without a script.

Comes in: a `Story` or `SweepStory` with its figures. Goes out: HTML text. Texts are clipped here,
made visible and escaped by the template of `report.html`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragen_diag.postmortem.model import PairRecord, SampleRecord, Signature, Texts, TokenRecord
from ragen_diag.report import html
from ragen_diag.report.drawn import Drawn
from ragen_diag.report.numbers import number, plural, short
from ragen_diag.report.postmortem import facts
from ragen_diag.report.safetext import clip
from ragen_diag.report.story import GroupDetail, StepDetail, Story, SweepStory
from ragen_diag.report.words import Words, plain_code, regime_words, signature_words

_LONGEST, _TAIL = 1500, 600
_PAIRS = {
    "same_prompt": "The same prompt",
    "least_grounded": "Least grounded of each step",
    "most_grounded": "Most grounded of each step",
}
_SHADES = ((1.0, "3"), (0.3, "2"), (0.05, "1"))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A response, cut at its reasoning."""

    facts: str
    before: str
    reasoning: str
    after: str


@dataclass(frozen=True, kw_only=True)
class PairView:
    """Responses before and after."""

    title: str
    summary: str
    prompt: str | None
    before: list[Row]
    after: list[Row]


@dataclass(frozen=True, kw_only=True)
class TokensView:
    """A response token by token: shade and text."""

    record: TokenRecord
    total: str
    tokens: list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class TextsView:
    """What changed between two steps."""

    texts: Texts
    pairs: list[PairView]
    tokens: list[TokensView]
    first: bool


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """A group of a step."""

    name: str
    summary: str
    prompt: str
    rows: list[Row]


@dataclass(frozen=True, kw_only=True)
class StepView:
    """A step to look into."""

    detail: StepDetail
    summary: str
    groups: list[GroupView]


@dataclass(frozen=True, kw_only=True)
class SignatureView:
    """A signature with its words; the verdict's own advice stands at the top of the page."""

    held: Signature
    words: Words
    do: tuple[str, ...]


def render_story_page(
    story: Story, timeline: Drawn, series: Sequence[Drawn], trajectory: Drawn
) -> str:
    """The post-mortem as one self-contained HTML page."""
    told = story.postmortem
    kept = facts.kept_ratio(story)
    return html.template("postmortem.html.j2").render(
        version=told.tool.version,
        told=told,
        facts=facts,
        words=facts.words(story),
        headline=facts.headline(story),
        marks=facts.marks(told),
        do=facts.to_do(told, told.verdict, kept),
        signatures=[_signature(story, held, kept) for held in told.signatures],
        leads=facts.leads(told),
        timeline=html.figure(timeline),
        series=[html.figure(plot) for plot in series],
        trajectory=html.figure(trajectory),
        texts=[_texts(texts, first=place == 0) for place, texts in enumerate(told.texts)],
        onsets=[*facts.happened(told), *(o for o in told.onsets if not o.happened)],
        correlations=[facts.correlation(record) for record in told.correlations],
        details=[_step(detail) for detail in story.details],
        anchors={detail.step for detail in story.details},
        inputs=_inputs(story),
        settings=html.value_pairs(told.inputs.settings),
        run=html.value_pairs(told.run),
        regime_words=regime_words,
        percent=lambda share: f"{number(share, share=True)} %",
        clip=_clip,
    )


def render_sweep_page(story: SweepStory, planes: Sequence[Drawn]) -> str:
    """The sweep as one self-contained HTML page."""
    return html.template("sweep.html.j2").render(
        version=story.sweep.tool.version,
        sweep=story.sweep,
        facts=facts,
        head=facts.SWEEP_HEAD,
        rows=facts.sweep_rows(story.sweep),
        figures=[html.figure(plot) for plot in planes],
    )


def _signature(story: Story, held: Signature, kept: str) -> SignatureView:
    is_verdict = held.code == story.postmortem.verdict
    return SignatureView(
        held=held,
        words=signature_words(held.code),
        do=() if is_verdict else facts.to_do(story.postmortem, held.code, kept),
    )


def _texts(texts: Texts, *, first: bool) -> TextsView:
    return TextsView(
        texts=texts,
        pairs=[_pair(pair) for pair in texts.pairs],
        tokens=[_tokens(record) for record in texts.tokens],
        first=first,
    )


def _pair(pair: PairRecord) -> PairView:
    def mean(gap: float | None) -> str:
        return "n/a" if gap is None else number(gap)

    return PairView(
        title=_PAIRS[pair.kind],
        summary=f"MI {mean(pair.gap_before)} to {mean(pair.gap_after)} nats/response",
        prompt=None if pair.prompt is None else _clip(pair.prompt),
        before=[_row(sample) for sample in pair.before],
        after=[_row(sample) for sample in pair.after],
    )


def _row(sample: SampleRecord) -> Row:
    start, end = sample.start, sample.end
    text = sample.response
    cut = (len(text), len(text)) if start is None or end is None else (start, end)
    parts = [clip(sample.response_id, 60)]
    if sample.reward is not None:
        parts.append(f"reward {short(sample.reward)}")
    if sample.gap is not None:
        parts.append(f"MI {number(sample.gap)} nats")
    if start is None:
        parts.append("no valid reasoning")
    return Row(
        facts=", ".join(parts),
        before=clip(text[: cut[0]], _LONGEST),
        reasoning=clip(text[cut[0] : cut[1]], _LONGEST),
        after=clip(text[cut[1] :], _LONGEST),
    )


def _tokens(record: TokenRecord) -> TokensView:
    total = f"{number(sum(record.pointwise_mi))} nats over {plural(len(record.tokens), 'token')}"
    return TokensView(
        record=record,
        total=total,
        tokens=[
            (_shade(value), clip(text, 200))
            for text, value in zip(record.tokens, record.pointwise_mi, strict=True)
        ],
    )


def _shade(value: float) -> str:
    for least, name in _SHADES:
        if abs(value) >= least:
            return ("u" if value > 0 else "d") + name
    return ""


def _step(detail: StepDetail) -> StepView:
    groups = plural(len(detail.groups), "group")
    shown = f"{groups} of {detail.groups_in_all:,}"
    return StepView(
        detail=detail,
        summary=f"{detail.why}; {shown}" if detail.why else shown,
        groups=[_group(group) for group in detail.groups],
    )


def _group(group: GroupDetail) -> GroupView:
    parts = [plural(group.responses, "response")]
    if group.reward_mean is not None:
        parts.append(f"mean reward {short(group.reward_mean)}")
    if group.flat is not None:
        parts.append(f"flat: {plain_code(group.flat).lower()}")
    elif group.reward_var is not None:
        parts.append(f"variance {number(group.reward_var)}")
    if group.gap is not None:
        parts.append(f"MI {number(group.gap)} nats/response")
    return GroupView(
        name=f"Group {clip(group.group_id, 60)}",
        summary=", ".join(parts),
        prompt=group.prompt,
        rows=[_row(sample) for sample in group.rows],
    )


def _inputs(story: Story) -> list[tuple[str, str]]:
    inputs = story.postmortem.inputs
    rows: list[tuple[str, str]] = [
        ("run", clip(inputs.run, 300)),
        ("trainer", inputs.dump.dialect),
        ("files", f"{len(inputs.dump.paths):,}"),
        ("scorer", clip(inputs.scorer, 300)),
    ]
    rows += [
        (f"checkpoint of step {found.step}", f"{clip(found.path, 300)}, {found.dtype}")
        for found in inputs.checkpoints
    ]
    for log in inputs.history:
        rows.append(
            (
                f"log, {log.kind}",
                f"{clip(log.path, 300)}: {plural(log.names, 'scalar')}, {log.matched:,} steps in"
                f" both, {log.only_in_log:,} only in the log, {len(log.only_in_rollouts):,} only in"
                " the rollouts" + _counts(log.left_out),
            )
        )
    return rows


def _counts(left_out: Mapping[str, int]) -> str:
    return "".join(f"; {n:,} left out: {clip(why, 80)}" for why, n in left_out.items())


def _clip(text: str) -> str:
    return clip(text, _LONGEST, tail=_TAIL)
