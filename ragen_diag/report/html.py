"""`report.html`: one file that opens anywhere, offline, without a script.

Comes in: a `Product` and its plots. Goes out: HTML text. Every text of unknown origin is clipped
and its hidden characters are made visible here; escaping is the template's (autoescape is on, and
only our own SVG is marked as safe).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from pydantic import JsonValue

from ragen_diag.judging.findings import Finding
from ragen_diag.report import facts, reward
from ragen_diag.report.drawn import Drawn
from ragen_diag.report.gauge import Gauge, gauge
from ragen_diag.report.numbers import number, short
from ragen_diag.report.product import Commonest, Example, Product
from ragen_diag.report.provenance import provenance
from ragen_diag.report.safetext import clip, visible
from ragen_diag.report.words import Words, finding_words, reason_words, regime_words
from ragen_diag.result import Result

_LONGEST_TEXT = 3000
_PROMPT_TAIL = 1200
_LONGEST_VALUE = 1000
MOST_EXAMPLES = 24

_KINDS: Mapping[str, str] = {
    "best_grounded": "Best grounded: the own prompt stands out most",
    "least_grounded": "Least grounded: another prompt explains the reasoning better",
    "excluded": "Left out: not scored",
}


@dataclass(frozen=True, kw_only=True)
class FindingView:
    """A finding with its wording and evidence as texts."""

    finding: Finding
    words: Words
    do: tuple[str, ...]
    evidence: list[tuple[str, str]]
    is_verdict: bool


@dataclass(frozen=True, kw_only=True)
class ExampleView:
    """An example with its response cut into what precedes, is, and follows the reasoning."""

    example: Example
    before: str
    reasoning: str
    after: str
    facts: list[tuple[str, str]]
    summary: str
    open: bool


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot as the page shows it; `svg` is None when it could not be drawn."""

    plot: Drawn
    svg: Markup | None


def render_html(product: Product, plots: Sequence[Drawn] = ()) -> str:
    """The report as one self-contained HTML page."""
    result = product.result
    words = regime_words(result.regime.label)
    return template("report.html.j2").render(
        version=result.tool.version,
        result=result,
        words=words,
        do=facts.to_do(words, result),
        facts=facts,
        reward=reward,
        axes=facts.axes(result),
        gauges=_gauges(result),
        findings=[_finding(finding, result) for finding in facts.by_severity(result)],
        metric_groups=facts.metric_groups(result),
        figures=[figure(plot) for plot in plots],
        examples=_examples(product.examples),
        commonest=product.commonest,
        answers=_answers(product.commonest),
        provenance=provenance(result),
        settings=value_pairs(result.inputs.settings),
        run=value_pairs(result.run),
        text=_text,
        prompt=_prompt,
    )


def figure(plot: Drawn) -> Figure:
    """A plot for a page: our own drawing, whose texts are numbers and words of ours."""
    return Figure(plot=plot, svg=None if plot.inline is None else Markup(plot.inline))


def template(name: str) -> Template:
    """A template of this package, with everything that makes texts safe."""
    environment = Environment(
        loader=PackageLoader("ragen_diag", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    return environment.get_template(name)


def _finalize(value: object) -> object:
    """Every expression of the template passes here: plain text is clipped and made visible."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(clip(value, _LONGEST_TEXT + 200))
    return value


def _text(value: str) -> str:
    return clip(value, _LONGEST_TEXT)


def _prompt(value: str) -> str:
    return clip(value, _LONGEST_TEXT, tail=_PROMPT_TAIL)


def _gauges(result: Result) -> dict[str, Gauge]:
    """A gauge per axis that has a value and a threshold."""
    found = {axis.name: gauge(axis.deciding) for axis in facts.axes(result)}
    return {name: drawn for name, drawn in found.items() if drawn is not None}


def _finding(finding: Finding, result: Result) -> FindingView:
    words = finding_words(finding.code)
    return FindingView(
        finding=finding,
        words=words,
        do=facts.to_do(words, result),
        evidence=[
            (clip(name.replace("_", " "), 100), _evidence(value))
            for name, value in finding.evidence.items()
            if value is not None
        ],
        # Its meaning and advice stand at the top of the page already.
        is_verdict=finding.code == result.regime.label,
    )


def _evidence(value: float | int | str | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return clip(value, _LONGEST_VALUE)
    return f"{value:,}" if isinstance(value, int) else short(value)


def _examples(examples: Sequence[Example]) -> list[tuple[str, list[ExampleView]]]:
    """The examples by kind, in the order of `_KINDS`."""
    shown = examples[:MOST_EXAMPLES]
    kinds = [*_KINDS, *sorted({example.kind for example in shown} - set(_KINDS))]
    groups = [
        (
            _KINDS.get(kind, kind),
            [
                _example(found, opened=kind == "least_grounded" and place == 0)
                for place, found in enumerate(found for found in shown if found.kind == kind)
            ],
        )
        for kind in kinds
    ]
    return [(title, views) for title, views in groups if views]


def _example(example: Example, *, opened: bool) -> ExampleView:
    response, start, end = example.response, example.start, example.end
    rows: list[tuple[str, str]] = []
    if example.reason is not None:
        rows.append(("why", reason_words(example.reason)))
    if example.reward is not None:
        rows.append(("reward", short(example.reward)))
    if example.n_tokens is not None:
        rows.append(("reasoning", f"{example.n_tokens:,} tokens"))
    if example.matched is not None:
        rows.append(("log p under the own prompt", f"{number(example.matched)} nats"))
    if example.margin is not None:
        rows.append(("margin over the best other prompt", f"{number(example.margin)} nats"))
    return ExampleView(
        example=example,
        before=clip(response[:start], _LONGEST_VALUE),
        reasoning=clip(response[start:end], _LONGEST_TEXT),
        after=clip(response[end:], _LONGEST_VALUE),
        facts=rows,
        summary=_summary(example),
        open=opened,
    )


def _summary(example: Example) -> str:
    parts = []
    if example.reason is not None:
        parts.append(reason_words(example.reason))
    if example.margin is not None:
        parts.append(f"margin {number(example.margin)} nats")
    if example.reward is not None:
        parts.append(f"reward {short(example.reward)}")
    return clip(", ".join(parts), 200)


def _answers(commonest: Commonest | None) -> list[tuple[int, str, str]]:
    if commonest is None:
        return []
    return [
        (
            answer.column,
            f"{answer.rows:,} of its responses"
            + ("" if answer.reward_mean is None else f", mean reward {short(answer.reward_mean)}"),
            clip(answer.prompt, _LONGEST_VALUE, tail=_LONGEST_VALUE // 2),
        )
        for answer in commonest.answered[:MOST_EXAMPLES]
    ]


def value_pairs(values: Mapping[str, JsonValue], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as dotted names and texts, in their own order."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        label = clip(f"{prefix}{name}", 100)
        if isinstance(value, dict):
            pairs += value_pairs(value, f"{label}.")
        else:
            shown = "default" if value is None else str(value)
            pairs.append((label, clip(shown, _LONGEST_VALUE)))
    return pairs
