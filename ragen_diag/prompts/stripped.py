"""A rendered chat that lost its special tokens -> its messages.

Trainers decode prompts without special tokens: the marks around roles are gone, their words are
left (system, user, assistant, each on a line). How the template writes roles is learnt from what
it makes of words of ours. A reading counts only if the template gives the text back from it.
"""

import re
from dataclasses import dataclass

from ragen_diag.errors import DumpError
from ragen_diag.prompts.rendering import Message, render_text
from ragen_diag.tokens import Tokenizer, special_marks

_WORDS = ("Zq0systemword", "Zq1userword", "Zq2assistantword", "Zq3userword")
_ROLES = ("system", "user", "assistant", "user")


@dataclass(frozen=True)
class Form:
    """What a template writes around contents, without special tokens and outer white space.

    `start` stands before the first user's content where there is no system message, `system`
    before a system's (None where the template refuses one), `user`, `assistant` before the others,
    `end` behind the last content, up to where the answer begins.
    """

    start: str
    system: str | None
    first_user: str
    user: str
    assistant: str
    end: str

    @property
    def tells_roles(self) -> bool:
        """Whether words are left that tell whose turn it is."""
        return bool(self.user and self.assistant and self.end)


def bare(tokenizer: Tokenizer, text: str) -> str:
    """A text without its special tokens, as decoding leaves it."""
    for mark in special_marks(tokenizer):
        text = text.replace(mark, "")
    return text


def dense(text: str) -> str:
    """A text without its white space."""
    return "".join(text.split())


def learn_form(tokenizer: Tokenizer) -> Form | None:
    """How the tokenizer's template writes roles; None where it cannot be found out."""
    plain = _gaps(tokenizer, first=1)
    if plain is None:
        return None
    whole = _gaps(tokenizer, first=0)
    return Form(
        start=plain[0],
        system=None if whole is None else whole[0],
        first_user=plain[0] if whole is None else whole[1],
        assistant=plain[1],
        user=plain[2],
        end=plain[3],
    )


def parse_stripped(tokenizer: Tokenizer, form: Form, text: str) -> list[dict[str, str]] | None:
    """The messages of a prompt whose special tokens were stripped; None if it is no such text.

    The template must make the same text of them again, special tokens and white space aside.
    """
    if not form.tells_roles:
        return None
    for messages in _readings(form, text):
        try:
            again = render_text(tokenizer, messages)
        except DumpError:
            continue
        if dense(bare(tokenizer, again)) == dense(text):
            return messages
    return None


def _gaps(tokenizer: Tokenizer, *, first: int) -> list[str] | None:
    """What stands before, between and behind contents in a chat of `_WORDS` from `first` on."""
    words = _WORDS[first:]
    chat: list[Message] = [
        {"role": role, "content": word} for role, word in zip(_ROLES[first:], words, strict=True)
    ]
    try:
        rest = bare(tokenizer, render_text(tokenizer, chat))
    except DumpError:
        return None
    gaps = []
    for word in words:
        gap, found, rest = rest.partition(word)
        if not found:
            return None
        gaps.append(gap.strip())
    return [*gaps, rest.strip()]


def _readings(form: Form, text: str) -> list[list[dict[str, str]]]:
    """The ways in which a text could be a chat of this form, likeliest first."""
    ended = re.search(rf"{_pattern(form.end)}\s*$", text)
    if ended is None:
        return []
    body = text[: ended.start()]
    readings = []
    if form.system is not None:
        system, found, rest = _split(_behind(form.system, body), form.first_user)
        if found and system.strip():
            readings.append([_message("system", system), *_turns(form, rest)])
    plain = _behind(form.start, body)
    return readings if plain is None else [*readings, _turns(form, plain)]


def _turns(form: Form, text: str) -> list[dict[str, str]]:
    """A user's content and what follows it, turn about."""
    messages = []
    role, rest = "user", text
    while True:
        mark = form.assistant if role == "user" else form.user
        content, found, rest = _split(rest, mark)
        messages.append(_message(role, content))
        if not found:
            return messages
        role = "assistant" if role == "user" else "user"


def _behind(mark: str, text: str) -> str | None:
    """What follows a mark at the beginning; None where it does not stand there."""
    found = re.match(rf"\s*{_pattern(mark)}", text)
    return None if found is None else text[found.end() :]


def _split(text: str | None, mark: str) -> tuple[str, bool, str]:
    """Up to the first place where a mark stands by itself on its lines, and what follows it.

    Where it nowhere does, up to the first place where a line ends with it: some templates have
    nothing but a special token between a content and the next role.
    """
    for lead in (r"\n[ \t]*", ""):
        found = re.search(rf"{lead}{_pattern(mark)}[ \t]*\n", text or "")
        if text is not None and found is not None:
            return text[: found.start()], True, text[found.end() :]
    return text or "", False, ""


def _pattern(mark: str) -> str:
    """A regular expression for a mark with any white space between its words."""
    return r"\s+".join(re.escape(word) for word in mark.split())


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content.strip()}
