"""Conversations -> the turns of the model in them, each with what the model had seen before it.

Text of tools, environments and users is never the model's. Knows no tables and no dialects.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from ragen_diag.dumps.jsontext import from_json

Message = Mapping[str, Any]
Plain = dict[str, str | None]
"""A message as role and content alone."""

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Where an API puts the reasoning that it took out of `content`."""
REASONING_PARTS = ("thinking", "reasoning")
PART_WORDS = {"image_url": "<image>", "image": "<image>", "input_audio": "<audio>"}


@dataclass(frozen=True)
class Turn:
    """One answer of the model: its text, and the messages before it as role and content.

    `flags` says what of the answer was no plain text: "reasoning_joined", "tool_calls_joined",
    "parts_left_out"; the same with `prompt_` in front speaks of the messages before it.
    """

    index: int
    before: list[Plain]
    response: str | None
    flags: tuple[str, ...] = ()
    position: int = 0
    """The place of the answer among the messages of the conversation."""


def turns(
    messages: Sequence[Message], *, given: int = 0, answers: Collection[int] | None = None
) -> Iterator[Turn]:
    """The assistant's messages from position `given` on (before it they are part of the prompt).

    Where the dump itself says which messages the model wrote, `answers` are their positions.
    Messages after the last answer were seen by no model and appear in no turn.

    >>> chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    >>> [(turn.index, turn.response, len(turn.before)) for turn in turns(chat)]
    [(0, '4', 1)]
    """
    before: list[Plain] = []
    lost: dict[str, None] = {}
    index = 0
    for position, message in enumerate(messages):
        text, flags = content(message)
        by_model = message.get("role") == "assistant" and position >= given
        if by_model if answers is None else position in answers:
            yield Turn(index, list(before), text, (*flags, *lost), position)
            index += 1
        lost |= dict.fromkeys(f"prompt_{flag}" for flag in flags)
        before.append(plain_message(message, text))


def last_turn(messages: Sequence[Message], index: int) -> Turn:
    """The last message as an answer, and those before it as what the model had seen."""
    (turn,) = turns(messages, answers={len(messages) - 1})
    return replace(turn, index=index)


def content(message: Message) -> tuple[str | None, tuple[str, ...]]:
    """The text of one message, and flags for what of it was none.

    Parts are joined; an image or a sound leaves a placeholder. What an API took out of the model's
    text into fields of their own comes back between tags: reasoning in front, calls of tools
    behind, in the form that Qwen's and Hermes' templates give them.

    >>> content({"role": "assistant", "thinking": "hm", "content": "4"})
    ('<think>hm</think>4', ('reasoning_joined',))
    """
    flags: dict[str, None] = {}
    text = _text(message.get("content"), flags)
    reasoning = next((message[name] for name in REASONING_FIELDS if message.get(name)), None)
    if isinstance(reasoning, str):
        text = f"<think>{reasoning}</think>{text or ''}"
        flags["reasoning_joined"] = None
    elif reasoning is not None:
        flags["parts_left_out"] = None
    calls = _calls(message)
    if calls:
        text = "\n".join([*([text] if text else []), *calls])
        flags["tool_calls_joined"] = None
    return text, tuple(flags)


def is_conversation(value: object) -> TypeGuard[list[Message]]:
    """Whether a value is a list of messages; an empty list is one."""
    return isinstance(value, list) and all(
        isinstance(item, Mapping) and "role" in item for item in value
    )


def as_conversation(value: object) -> list[Message] | None:
    """The messages that a cell holds, as they are, or None when it holds none.

    A cell is a list, a tuple or an array of messages, or the JSON text of a list of some. How ever
    one conversation is written, `plain` makes the same of it.

    >>> chat = as_conversation('[{"role": "user", "content": [{"type": "text", "text": "hi"}]}]')
    >>> plain(chat)
    [{'role': 'user', 'content': 'hi'}]
    """
    if isinstance(value, str):
        value = _messages_of_text(value)
    messages = _listed(value)
    return messages if is_conversation(messages) else None


def plain(messages: Sequence[Message]) -> list[Plain]:
    """Messages as role and content alone."""
    return [plain_message(message, content(message)[0]) for message in messages]


def plain_message(message: Message, text: str | None) -> Plain:
    """A message whose text is `text`, as role and content alone."""
    role = message.get("role")
    return {"role": None if role is None else str(role), "content": text}


def _messages_of_text(text: str) -> object:
    """What a text is as JSON; None for one that can be no list of messages."""
    if not text.lstrip().startswith("[") or '"role"' not in text:
        return None
    return from_json(text)


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple | np.ndarray) else value


def _text(value: object, flags: dict[str, None]) -> str | None:
    value = _listed(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_part(part, flags) for part in value)
    if isinstance(value, Mapping):
        return _part(value, flags)
    flags["parts_left_out"] = None
    return None


def _calls(message: Message) -> list[str]:
    """The calls of tools in a message of the model; each may be JSON text itself."""
    calls = message.get("tool_calls") or [call for call in [message.get("function_call")] if call]
    if message.get("role") != "assistant" or not isinstance(calls, list | tuple):
        return []
    return [f"<tool_call>\n{_call(call)}\n</tool_call>" for call in calls]


def _call(call: object) -> str:
    known = from_json(call)
    if not isinstance(known, Mapping):
        return call if isinstance(call, str) else json.dumps(call, default=str)
    function = known["function"] if isinstance(known.get("function"), Mapping) else known
    arguments = function.get("arguments")
    loaded = from_json(arguments)
    named = {"name": function.get("name"), "arguments": arguments if loaded is None else loaded}
    return json.dumps(named, ensure_ascii=False, default=str)


def _part(part: object, flags: dict[str, None]) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        flags["parts_left_out"] = None
        return ""
    kind = str(part.get("type"))
    text = part.get("text")
    if kind in REASONING_PARTS:
        reasoning = part.get(kind) or text
        if isinstance(reasoning, str):
            flags["reasoning_joined"] = None
            return f"<think>{reasoning}</think>"
    elif isinstance(text, str):
        return text
    flags["parts_left_out"] = None
    return PART_WORDS.get(kind, "")
