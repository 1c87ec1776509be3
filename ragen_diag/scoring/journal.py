"""What is scored already, kept in files so that a run that was stopped goes on where it was.

One file for each column of a block of rows, written beside and then renamed: whatever stops the
run, a file is whole or not there. Its name tells the inputs, so that another run which was given
the same folder at the same time does no harm. Knows no model.
"""

import hashlib
import os
import re
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragen_diag.errors import UsageError

_OURS = re.compile(r"[\w-]+\.(?P<key>[0-9a-f]{32})\.(npz|\d+\.partial)")

Record = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Resume:
    """Where unfinished scores are kept, and whose they are: everything that they depend on besides
    the ids, such as the checkpoint's fingerprint."""

    folder: Path
    identity: str


class Journal:
    """Records by name. Those of other inputs are thrown away on opening; the folder is
    made with the first record."""

    def __init__(self, resume: Resume, inputs: bytes) -> None:
        self._folder = resume.folder
        self._key = hashlib.sha256(resume.identity.encode() + b"\0" + inputs).hexdigest()[:32]
        discard(self._folder, keep=self._key)

    def read(self, name: str) -> Record | None:
        """A record that was written, or None. Records hold "sums" and "tokens"."""
        try:
            with (
                self._file(name).open("rb") as stream,
                np.load(stream, allow_pickle=False) as arrays,
            ):
                return {key: arrays[key] for key in ("sums", "tokens")}
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            # Not there, or damaged by something else than a stop: then it is scored again.
            return None

    def write(self, name: str, record: Record) -> None:
        """Keep a record, all of it or nothing."""
        file = self._file(name)
        partial = file.with_suffix(f".{os.getpid()}.partial")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as stream:
                np.savez(stream, sums=record["sums"], tokens=record["tokens"])
            os.replace(partial, file)
        except FileNotFoundError:
            # Another run with this folder has just thrown it away; the scores are at hand.
            return
        except OSError as error:
            raise UsageError(
                f"{self._folder}: unfinished scores can't be kept there ({error.strerror}); choose"
                " another folder with --out"
            ) from error

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.{self._key}.npz"


def discard(folder: Path, *, keep: str | None = None) -> None:
    """Remove the records in a folder but those of one key, and the folder if it is empty then.

    Files of others are left alone, and what can't be removed stays: it bears another key.
    """
    with suppress(OSError):
        for file in folder.iterdir():
            named = _OURS.fullmatch(file.name)
            if named and named["key"] != keep:
                with suppress(OSError):
                    file.unlink()
        folder.rmdir()
