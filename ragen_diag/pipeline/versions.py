"""Which versions of the policy wrote each row, as trainers that sample while they train note it.

Comes in: the `extra` JSON of the canonical table. Goes out: rows by versions. Knows no verdicts.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

VERSION_KEYS = (
    "policy_version",
    "policy_versions",
    "weight_version",
    "weight_versions",
    "model_version",
    "model_versions",
    "head_version",
    "tail_version",
    "min_version",
    "max_version",
    "start_version",
    "end_version",
    "param_version",
    "param_version_start",
    "param_version_end",
)
"""Keys of `extra` that hold a version or a list of them."""

_LONGEST = 40
Version = int | str


@dataclass(frozen=True)
class PolicyVersions:
    """`rows` counts the rows of each version, or of each span such as "8..10", lowest first;
    `spanning` are the rows of several versions. Rows without a version are in neither."""

    rows: Mapping[str, int]
    spanning: int


def policy_versions(extra: pl.Series) -> PolicyVersions:
    """The mix of versions; empty for a dump that tells none.

    Numbers in texts count as numbers; negative ones mean none. Only rows that name one of the
    keys are parsed.

    >>> rows = ['{"policy_version": 8}', '{"head_version": 8, "tail_version": 10}', "{}", None]
    >>> found = policy_versions(pl.Series(rows))
    >>> dict(found.rows), found.spanning
    ({'8': 1, '8..10': 1}, 1)
    """
    marks = "|".join(VERSION_KEYS)
    named = extra.filter(extra.str.contains(f'"(?:{marks})"').fill_null(False))
    spans = Counter(span for text in named if (span := _span(text)) is not None)
    ordered = sorted(spans, key=lambda span: [_order(version) for version in span])
    return PolicyVersions(
        rows={_label(span): spans[span] for span in ordered},
        spanning=sum(rows for span, rows in spans.items() if span[0] != span[1]),
    )


def _span(text: str) -> tuple[Version, Version] | None:
    """The lowest and the highest version of one row."""
    members = _loaded(text)
    if not isinstance(members, dict):
        return None
    found = [version for key in VERSION_KEYS for version in _versions(members.get(key))]
    return (min(found, key=_order), max(found, key=_order)) if found else None


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _versions(value: object) -> Iterator[Version]:
    if isinstance(value, str) and value.startswith("["):
        # In a column of numbers and lists every value is text.
        value = _loaded(value)
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, float) and item.is_integer():
            item = int(item)
        if isinstance(item, str) and item.isascii() and item.isdigit() and len(item) < _LONGEST:
            item = int(item)
        if isinstance(item, bool):
            continue
        if (isinstance(item, int) and item >= 0) or (isinstance(item, str) and item):
            yield item


def _order(version: Version) -> tuple[bool, int, str]:
    """Numbers by value, then names by alphabet."""
    return (True, 0, version) if isinstance(version, str) else (False, version, "")


def _label(span: tuple[Version, Version]) -> str:
    low, high = (str(version)[:_LONGEST] for version in span)
    return low if low == high else f"{low}..{high}"
