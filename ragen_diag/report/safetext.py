"""Text of unknown origin made safe to show: hidden characters visible, long texts clipped.

Rollouts, run names and paths are data that may try to steer a terminal, a CI log or a page. Every
renderer passes them through here first and then escapes for its own medium.
"""

import re
import unicodedata

# Categories that move the cursor, reorder the line, or cannot be seen: control, format (bidi and
# zero-width characters among them), surrogate, line and paragraph separator, private, unassigned.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"})
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def _escape(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def visible(text: str, *, keep: str = "\n\t") -> str:
    r"""The text with every control, bidi, zero-width or otherwise hidden character as an escape.

    Characters of `keep` stay; "\r\n" counts as a line break.

    >>> visible("a\x1b[2Jb\u202ec")
    'a\\x1b[2Jb\\u202ec'
    """
    if "\n" in keep:
        text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in keep or unicodedata.category(char) not in _HIDDEN else _escape(char)
        for char in text
    )


def one_line(text: str) -> str:
    r"""Fit for one line of a terminal or table: no terminal sequences, white space collapsed.

    >>> one_line("\x1b[31mred\x1b[0m\n next")
    'red next'
    """
    return visible(" ".join(_ANSI.sub("", text).split()), keep="")


def inert(line: str) -> str:
    r"""A line that a CI runner does not take for a command of its own.

    Runners trim a line and then look for "::" at its start; "##[" counts anywhere.

    >>> inert("  ::error::x")
    '  \\::error::x'
    """
    line = re.sub(r"^(\s*)::", r"\1\\::", line)
    return line.replace("##[", "#\\#[")


def clip(text: str, limit: int, *, tail: int = 0) -> str:
    """At most `limit` characters of the text, then how many were left out; `tail` of them from
    the end, where the last turn of a chat prompt stands.

    >>> clip("a" * 19_890, 10)
    'aaaaaaaaaa... (+19,880 chars)'
    >>> clip("abcdefghij", 4, tail=2)
    'ab... (+6 chars) ...ij'
    """
    if len(text) <= limit:
        return text
    note = f"... (+{len(text) - limit:,} chars)"
    if tail == 0:
        return text[:limit] + note
    return f"{text[: limit - tail]}{note} ...{text[-tail:]}"


def encodable(text: str, encoding: str) -> str:
    r"""The text with characters the encoding lacks written as escapes.

    >>> encodable("naïve 推", "cp1252")
    'naïve \\u63a8'
    """
    return text.encode(encoding, errors="backslashreplace").decode(encoding)
