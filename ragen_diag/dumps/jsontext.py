"""Values that stand as JSON text in cells and fields, both ways. Knows no tables."""

import json
import math


def as_json(value: object) -> str:
    """One value as strict JSON; numbers that JSON lacks become null.

    >>> as_json({"a": [float("nan"), True]})
    '{"a": [null, true]}'
    """
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, default=str)


def from_json(value: object) -> object:
    """A value as it is, text as the JSON it holds; None when it holds none.

    >>> from_json("[1, 2]"), from_json("plain"), from_json([3])
    ([1, 2], None, [3])
    """
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
