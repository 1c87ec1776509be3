"""Values of YAML and torch files -> values that JSON has, so that what follows knows no others.

Both let one value stand in several places, even inside itself, so that a small file may write out
to more than memory holds. Knows neither format.
"""

from collections.abc import Callable
from typing import Any

MOST_VALUES = 20_000_000
_TEXT_OF_A_VALUE = 64
"""Characters that take the memory of a value."""
_MOST_BITS = 14_000
"""Of an integer: of more than 4,300 digits none can be written."""

_UNFINISHED = object()


def plain(value: object, size: int, leaf: Callable[[Any], object] = str) -> Any:
    """`value` of a file of `size` bytes: keys become texts, sets and tuples lists, bytes UTF-8.

    `leaf` makes values of all other objects. What stands in several places still does so.

    Raises:
        ValueError: it holds itself or an integer beyond all bounds, or writes out to too much.
        RecursionError: it is nested beyond all bounds.

    >>> plain({1: (b"x", {"b", "a"})}, 100)
    {'1': ['x', ['a', 'b']]}
    """
    found = _plain(value, leaf, {})
    if _values(found, {}) > most_values(size):
        raise ValueError("shared values write out to too much")
    return found


def most_values(size: int) -> int:
    """How many values a file of `size` bytes may write out to: without sharing each takes one."""
    return max(MOST_VALUES, size)


def _plain(value: Any, leaf: Callable[[Any], object], known: dict[int, Any]) -> Any:
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise ValueError("an integer of too many digits")
        return value
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    if id(value) in known:
        if known[id(value)] is _UNFINISHED:
            raise ValueError("a value that holds itself")
        return known[id(value)]
    known[id(value)] = _UNFINISHED
    known[id(value)] = found = _of_object(value, leaf, known)
    return found


def _of_object(value: Any, leaf: Callable[[Any], object], known: dict[int, Any]) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item, leaf, known) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [_plain(item, leaf, known) for item in sorted(value, key=str)]
    if isinstance(value, list | tuple):
        return [_plain(item, leaf, known) for item in value]
    return leaf(value)


def _values(value: object, known: dict[int, int]) -> int:
    """How many values there are with every shared one written out."""
    if isinstance(value, str):
        return 1 + len(value) // _TEXT_OF_A_VALUE
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_values(item, known) for item in items)
    return known[id(value)]
