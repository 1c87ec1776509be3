"""What one written dump must read back as, and how the files of all of them are written.

Comes in: nothing. Goes out: `Case`, and writers of lines and documents. Knows no reader: the
expected rows are worked out by hand from what the trainer means by its columns.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragen_diag.settings import Reading

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """Files as a trainer leaves them, and the rows they hold.

    A row names only what the files say for certain: a key that is absent is not compared.
    `group` and `trajectory` are labels: equal labels share an id within a step, different ones do
    not. `turn` counts from the first turn of the trajectory. `response_has` lists texts that the
    response must hold; `components_have` some of the components.
    """

    name: str
    paths: tuple[Path, ...]
    """What a user would point at."""
    dialect: str | None
    """None where more than one name would be right."""
    rows: tuple[Row, ...]
    reading: Reading = field(default_factory=Reading)
    group_source: str | None = None
    notes: Mapping[str, int] = field(default_factory=dict)
    """Counts that must be there; there may be others."""
    clean: bool = False
    """Nothing at all may be counted."""


def lines(path: Path, rows: Iterable[Any], *, ascii_only: bool = False) -> Path:
    """One JSON document per line, as Python writes it: bare NaN, raw unicode unless told."""
    text = "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows)
    return put(path, text.encode("utf-8"))


def document(path: Path, value: Any, *, indent: int | None = 2, ascii_only: bool = True) -> Path:
    """One JSON document that fills a file."""
    return put(path, json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8"))


def put(path: Path, data: bytes) -> Path:
    """Exactly these bytes, in a folder that is made if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def message(role: str, content: Any) -> dict[str, Any]:
    """A chat message."""
    return {"role": role, "content": content}


def chat(user: str) -> str:
    """A Qwen prompt with its special tokens stripped, as verl and TRL decode it."""
    return f"system\nYou are a helpful assistant.\nuser\n{user}\nassistant\n"


def chatml(user: str) -> str:
    """The same prompt with its special tokens kept."""
    return (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    )


Writer = Callable[[Path], Case]
