"""Messages -> what the checkpoint's chat template makes of them, as ids or as text.

A template is a stranger's code that is run in jinja's sandbox: whatever it raises is told as an
error of the dump or of the tokenizer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from ragen_diag.errors import DumpError
from ragen_diag.tokens import Tokenizer

Message = Mapping[str, Any]


def render_messages(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Ids of a conversation up to where the assistant's answer begins, by the chat template.

    Raises:
        DumpError: the tokenizer has no chat template, or it refuses these messages.
    """
    return flat_ids(_apply(tokenizer, messages, tokenize=True))


def render_text(tokenizer: Tokenizer, messages: Sequence[Message]) -> str:
    """The same as text, special tokens included.

    Raises:
        DumpError: see `render_messages`.
    """
    return str(_apply(tokenizer, messages, tokenize=False))


def flat_ids(rendered: Any) -> list[int]:
    """The ids of one conversation, in whatever shape a version of transformers gives them.

    A list, a mapping such as BatchEncoding, a tensor or an array; alone or as a batch of one.

    >>> flat_ids({"input_ids": [[1, 2]], "attention_mask": [[1, 1]]})
    [1, 2]
    """
    ids = rendered["input_ids"] if isinstance(rendered, Mapping) else rendered
    listed = [_plain(token) for token in _plain(ids)]
    if not listed or not isinstance(listed[0], list):
        return [int(token) for token in listed]
    (row,) = listed
    return [int(token) for token in row]


def _plain(value: Any) -> Any:
    """A tensor or an array as Python's own lists and numbers."""
    return value.tolist() if hasattr(value, "tolist") else value


def _apply(tokenizer: Tokenizer, messages: Sequence[Message], *, tokenize: bool) -> Any:
    if not tokenizer.chat_template:
        raise DumpError(
            "the prompt is messages and the tokenizer has no chat template; add a `prompt` column"
            " or name another tokenizer with --tokenizer"
        )
    try:
        return tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=tokenize, return_dict=False
        )
    # A template that adds None to a text, or a tokenizer that has several and no default one.
    except (TemplateError, TypeError, ValueError) as error:
        told = " ".join(str(error).split())
        raise DumpError(f"the chat template refuses a prompt's messages: {told}") from error
