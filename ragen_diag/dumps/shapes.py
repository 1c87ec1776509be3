"""Records as they stand in a file -> one record per row, for the odd ways to write a table.

A line may be a table of its own (a list per column), every value may be wrapped in a list of one,
a file may be one table of columns and data, and a row may hold many samples side by side. Knows
no dialects: what a column means is decided elsewhere.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ragen_diag.dumps.raw import Record

_NUMBERED = re.compile(r"(input|output|score|label)_(\d+)")
_TEXTS = ("prompt", "completion", "response", "responses", "output", "messages", "content")


def rows_of(record: Record) -> Iterator[Record]:
    """The rows that one record of a file holds; mostly itself.

    Raises:
        ValueError: the record is a table whose columns are of different lengths or of one name.

    >>> list(rows_of({"prompt": ["p", "q"], "completion": ["a", "b"]}))
    [{'prompt': 'p', 'completion': 'a'}, {'prompt': 'q', 'completion': 'b'}]
    """
    if "data" in record and is_table(record):
        names = _names(record)
        for values in record["data"]:
            row = dict(zip(names, values, strict=True))
            yield from _wide(row) if _is_wide(row) else (row,)
    elif _is_wide(record):
        yield from _wide(record)
    elif "idx" in record and _is_wrapped(record):
        yield {name: value[0] if name != "idx" else value for name, value in record.items()}
    elif _is_columnar(record):
        names = list(record)
        yield from (
            dict(zip(names, values, strict=True)) for values in zip(*record.values(), strict=True)
        )
    else:
        yield record


def is_table(record: Mapping[str, Any]) -> bool:
    """Whether a record is a whole table, as W&B writes them: column names and rows."""
    columns, data = record.get("columns"), record.get("data")
    return (
        isinstance(columns, list)
        and isinstance(data, list)
        and all(isinstance(row, list) for row in data)
    )


def _names(table: Mapping[str, Any]) -> list[str]:
    names = [str(name) for name in table["columns"]]
    for place, row in enumerate(table["data"], start=1):
        if len(row) != len(names):
            raise ValueError(
                f"is a table of {len(names)} columns, and its row {place} has {len(row)} values"
            )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"is a table with several columns {twice!r}")
    return names


def _is_wrapped(record: Mapping[str, Any]) -> bool:
    others = [value for name, value in record.items() if name != "idx"]
    return isinstance(record.get("idx"), int) and all(
        isinstance(value, list) and len(value) == 1 for value in others
    )


def _is_columnar(record: Mapping[str, Any]) -> bool:
    """Lists of one length throughout, those of text holding text, so that no list is a chat."""
    values = record.values()
    if not isinstance(next(iter(values), None), list) or len(values) < 2:
        return False
    if not all(isinstance(value, list) for value in values):
        return False
    texts = [record[name] for name in _TEXTS if name in record]
    if not texts or any(_is_chat(text) for text in texts):
        return False
    lengths = {name: len(value) for name, value in record.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"is a table whose columns are of different lengths ({told})")
    return True


def _is_chat(value: list[Any]) -> bool:
    return any(isinstance(item, dict) and "role" in item for item in value)


def _is_wide(record: Mapping[str, Any]) -> bool:
    return "input_1" in record and "output_1" in record


def _wide(record: Mapping[str, Any]) -> Iterator[Record]:
    """`input_1, output_1, score_1, input_2, ...` as rows of input, output, score."""
    shared = {name: value for name, value in record.items() if not _NUMBERED.fullmatch(name)}
    samples: dict[int, Record] = {}
    for name, value in record.items():
        if found := _NUMBERED.fullmatch(name):
            samples.setdefault(int(found[2]), {})[found[1]] = value
    for number in sorted(samples):
        if any(value is not None for value in samples[number].values()):
            yield {**shared, **samples[number]}
