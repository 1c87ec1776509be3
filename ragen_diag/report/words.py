"""What every regime and finding means, and what to do: the one place with prose about codes.

The sentences are data in `words.toml`; renderers look a code up here. An unknown code still
renders, under its own name. Changing a sentence can change no verdict.
"""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Tone = Literal["good", "caution", "bad", "void", "neutral"]


@dataclass(frozen=True, kw_only=True)
class Words:
    """The wording of one code: title, one sentence of meaning, steps to take, how to make sure,
    where to read on."""

    title: str
    meaning: str = ""
    do: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    reference: str = ""
    tone: Tone = "neutral"


AXES: Mapping[str, tuple[str, str]] = {
    "mi": ("input-dependence", "Does reasoning depend on the prompt?"),
    "entropy": ("variety", "Does it vary for one prompt?"),
}
"""Short name and question of each axis of the plane."""

STATES: Mapping[str, str] = {
    "low": "low",
    "high": "high",
    "undetermined": "unclear",
    "not_available": "n/a",
}

APPLICABILITY: Mapping[str, str] = {
    "likely_helps": "a variance filter likely helps",
    "unclear": "a variance filter may or may not help",
    "likely_hurts": "a variance filter likely hurts",
    "undefined": "nothing for a variance filter",
}

REASONS: Mapping[str, str] = {
    "no_reasoning_span": "no reasoning span",
    "empty_reasoning": "empty reasoning",
    "unclosed_reasoning": "unclosed reasoning",
    "no_prompt": "no prompt",
    "null_response": "no response in the dump",
    "empty_response": "empty response",
    "too_long": "longer than the model's context",
    "prompt_too_long": "prompt longer than the model's context",
    "not_sampled": "prompt not sampled",
    "vision_placeholder": "placeholder of an image or a sound",
}
"""Why a response was not scored."""

_KNOBS = ("kl", "entropy", "group", "length", "temperature", "clip", "keep")


@cache
def _prose() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    text = files("ragen_diag.report").joinpath("words.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _words(section: str) -> Mapping[str, Words]:
    return {
        code: Words(
            **{  # type: ignore[arg-type]
                **entry,
                "do": tuple(entry.get("do", ())),
                "confirm": tuple(entry.get("confirm", ())),
            }
        )
        for code, entry in _prose()[section].items()
    }


def regimes() -> Mapping[str, Words]:
    """Wording of the regimes, by label."""
    return _words("regimes")


def findings() -> Mapping[str, Words]:
    """Wording of the findings, by code."""
    return _words("findings")


def signature_words(code: str) -> Words:
    """Wording of a signature of a run, or of a verdict that is none."""
    return _words("signatures").get(code) or _words("verdicts").get(code) or finding_words(code)


def plain_code(code: str) -> str:
    """A code as words: the fallback for everything that has no wording yet.

    >>> plain_code("left_over_rows")
    'Left over rows'
    """
    return code.replace("_", " ").strip().capitalize() or "Unnamed"


def regime_words(label: str) -> Words:
    """Wording of a regime's label; a label that is a finding's code has that finding's wording."""
    return regimes().get(label) or finding_words(label)


def finding_words(code: str) -> Words:
    """Wording of a finding's code."""
    return findings().get(code) or Words(title=plain_code(code))


def reason_words(reason: str) -> str:
    """Wording of a reason for leaving a response out."""
    return REASONS.get(reason) or plain_code(reason).lower()


def advice(
    words: Words, dialect: str, *, without: Collection[str] = (), kept: str = ""
) -> tuple[str, ...]:
    """The steps to take, with the trainer's own option names where the dialect gives them away.

    `kept` is what is known of the share of groups that the filter would keep.

    A step may begin with a mark, {filter} or {baseline}; those of the marks in `without` are left
    out, as this result speaks against them.

    >>> found = Words(title="", do=("Raise the KL coefficient{kl}.", "{filter}Filter."))
    >>> advice(found, "trl"), advice(found, "trl", without={"filter"})[1:]
    (('Raise the KL coefficient (beta).', 'Filter.'), ())
    """
    options = _prose()["knobs"].get(dialect, {})
    names = {knob: f" ({options[knob]})" if knob in options else "" for knob in _KNOBS}
    unwanted = tuple(f"{{{mark}}}" for mark in without)
    steps = [step for step in words.do if not (unwanted and step.startswith(unwanted))]
    marks = {**names, "filter": "", "baseline": "", "kept": kept}
    return tuple(step.format_map(marks).rstrip() for step in steps)
