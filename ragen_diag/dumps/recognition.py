"""Column names of a file -> the dialect it is written in, and how sure that is.

Knows the dialects by their signatures alone; reads no rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ragen_diag.dumps.dialect import Dialect
from ragen_diag.errors import DumpError, UsageError
from ragen_diag.rollouts import listing

Certainty = Literal["named", "sure", "likely", "guessed"]


class UnknownDialect(DumpError):
    """A file that can be read but is no dump: metrics or a configuration, say."""


@dataclass(frozen=True)
class Recognised:
    """A file's dialect, and on what grounds."""

    dialect: Dialect
    certainty: Certainty
    grounds: str


def recognise(
    path: Path | str,
    columns: Sequence[str],
    dialects: Sequence[Dialect],
    fallback: Dialect,
    *,
    named: str | None = None,
) -> Recognised:
    """The dialect of a file with these columns: the one named, else by signature.

    `fallback` knows columns under many names and is asked last.

    Raises:
        UnknownDialect: no dialect has such columns.
        DumpError: columns of several dialects.
        UsageError: there is no dialect of that name.
    """
    if named is not None:
        known = {dialect.name: dialect for dialect in (*dialects, fallback)}
        if named not in known:
            raise UsageError(f"--dialect {named}: there is none; known: {', '.join(known)}")
        return Recognised(known[named], "named", "as asked for")
    there = frozenset(columns)
    found = {d: s for d in dialects if (s := d.signature_in(there)) is not None}
    if not found:
        if fallback.signature_in(there) is not None:
            return Recognised(fallback, "guessed", f"columns by their names: {listing(columns)}")
        raise UnknownDialect(
            f"{path}: no known dialect; found columns {listing(columns)}; a dump needs prompt,"
            " response and reward: say which columns they are, as in --map response=output"
        )
    most = max(found.values(), key=len)
    if any(not signature <= most for signature in found.values()):
        names = " and ".join(f"{d.name} ({listing(sorted(s))})" for d, s in found.items())
        raise DumpError(
            f"{path}: columns of several dialects, {names}; keep those of one, or name the dialect"
            " with --dialect"
        )
    dialect = next(dialect for dialect, signature in found.items() if signature == most)
    telling = sorted(dialect.telling & there)
    grounds = f"columns {listing(sorted(most))}"
    if telling:
        return Recognised(dialect, "sure", f"{grounds} and {listing(telling)}")
    return Recognised(dialect, "likely", grounds)
