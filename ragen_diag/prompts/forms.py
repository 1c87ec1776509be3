"""A row of the dump -> its prompt, by what the row has and the format that was asked for.

Ids of the dump come first, whatever was asked for: they are what the model saw. Comes in: a row's
`prompt_ids`, `response_ids`, `prompt` and `messages`. Goes out: a `Prompt` and the form it had.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ragen_diag.errors import DumpError
from ragen_diag.prompts.prompt import (
    Prompt,
    encode_prompt,
    is_rendered,
    prompt_of_messages,
    split_prompt_ids,
)
from ragen_diag.prompts.stripped import Form, learn_form, parse_stripped
from ragen_diag.settings import PromptFormat
from ragen_diag.spans import Tags, split_prompt
from ragen_diag.tokens import Tokenizer

Row = Mapping[str, Any]


class PromptReader:
    """Makes the prompts of rows, by one tokenizer, one pair of tags and one format.

    "auto" takes text, "rendered" if it holds special tokens and "raw" if not, and messages where
    there is no text. "raw", "rendered", "messages" and "stripped" take all text for that; a text
    without messages is then one user's message. Messages without text are rendered in any case.
    """

    def __init__(self, tokenizer: Tokenizer, tags: Tags | None, prompt_format: PromptFormat):
        self._tokenizer = tokenizer
        self._tags = tags
        self._format = prompt_format
        self._form: Form | None = None

    def read(self, row: Row) -> tuple[Prompt | None, str]:
        """The prompt and the form it had: "ids", "raw", "rendered", "messages" or "stripped".

        (None, "") where the row has no prompt.

        Raises:
            DumpError: a template that is missing or refuses the messages, or a text that is no
                stripped chat where it should be one.
        """
        prompt, form = self._read(row)
        there = prompt is not None and (form == "ids" or prompt.ids or prompt.opening_ids)
        return (prompt, form) if there else (None, "")

    def _read(self, row: Row) -> tuple[Prompt | None, str]:
        text, messages = row["prompt"], row["messages"]
        if has_ids(row):
            return split_prompt_ids(self._tokenizer, row["prompt_ids"], self._tags), "ids"
        if text is None:
            return (self._of(messages), "messages") if messages else (None, "")
        if self._format == "messages":
            body, opening = split_prompt(text, self._tags)
            told = messages or [{"role": "user", "content": body}]
            return self._of(told, opening), "messages"
        if self._format == "stripped":
            return self._stripped(text), "stripped"
        rendered = self._format == "rendered"
        if self._format == "auto":
            rendered = is_rendered(self._tokenizer, text)
        prompt = encode_prompt(self._tokenizer, text, self._tags, rendered=rendered)
        return prompt, "rendered" if rendered else "raw"

    def messages_of(self, text: str) -> tuple[list[dict[str, str]], str] | None:
        """The messages of a text that looks like a chat stripped of its special tokens, and the
        open tag that stands behind them; None for any other text."""
        if not self._tokenizer.chat_template:
            return None
        self._form = self._form or learn_form(self._tokenizer)
        if self._form is None:
            return None
        body, opening = split_prompt(text, self._tags)
        for part, rest in ((text, ""), (body, opening)):
            messages = parse_stripped(self._tokenizer, self._form, part)
            if messages is not None:
                # A tag that the template gives is one that the dump told of.
                return messages, rest or opening
        return None

    def _of(self, messages: Sequence[Mapping[str, Any]], opening: str = "") -> Prompt:
        return prompt_of_messages(self._tokenizer, messages, self._tags, opening=opening)

    def _stripped(self, text: str) -> Prompt:
        found = self.messages_of(text)
        if found is None:
            raise DumpError(
                "the prompt is no chat of the checkpoint's template without its special tokens;"
                " look at it, and give another --prompt-format (auto, raw, rendered, messages)"
            )
        return self._of(*found)


def has_ids(row: Row) -> bool:
    """Whether the row has the ids of its prompt and of its response."""
    return bool(row["prompt_ids"]) and bool(row["response_ids"])
