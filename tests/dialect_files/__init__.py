"""Dump files as trainers write them, one function each, with the reading worked out by hand."""

from dialect_files import (
    columnar,
    containers,
    episodes,
    home_grown,
    lines_of_rows,
    slime,
    trl,
    verifiers,
    verl,
)
from dialect_files.case import Case, Writer
from dialect_files.compare import disagreements
from dialect_files.refused import REFUSED

WRITERS: tuple[Writer, ...] = (
    *verl.WRITERS,
    *trl.WRITERS,
    *columnar.WRITERS,
    *lines_of_rows.WRITERS,
    *episodes.WRITERS,
    *verifiers.WRITERS,
    *slime.WRITERS,
    *home_grown.WRITERS,
    *containers.WRITERS,
)
"""Every file or folder that must be read."""

__all__ = ["REFUSED", "WRITERS", "Case", "Writer", "disagreements"]
