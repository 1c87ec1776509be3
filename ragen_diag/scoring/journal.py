"""What is scored already, kept in files so that a run that was stopped goes on where it was.

One file for each column of a block of rows, written beside and then renamed: whatever stops the
run, a file is whole or not there. Knows no model.
"""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragen_diag.errors import UsageError

_OWNER = "inputs.json"

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
        self._key = hashlib.sha256(resume.identity.encode() + b"\0" + inputs).hexdigest()
        if _read_key(self._folder) != self._key:
            shutil.rmtree(self._folder, ignore_errors=True)

    def read(self, name: str) -> Record | None:
        """A record that was written, or None. Records hold "sums" and "tokens"."""
        file = self._folder / f"{name}.npz"
        try:
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in ("sums", "tokens")}
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            # Not there, or damaged by something else than a stop: then it is scored again.
            return None

    def write(self, name: str, record: Record) -> None:
        """Keep a record, all of it or nothing."""
        partial = self._folder / f"{name}.partial.npz"
        try:
            if not self._folder.exists():
                self._claim()
            with partial.open("wb") as stream:
                np.savez(stream, sums=record["sums"], tokens=record["tokens"])
            os.replace(partial, self._folder / f"{name}.npz")
        except OSError as error:
            raise UsageError(_unwritable(self._folder, error)) from error

    def _claim(self) -> None:
        self._folder.mkdir(parents=True)
        partial = self._folder / f"{_OWNER}.partial"
        partial.write_text(json.dumps({"key": self._key}))
        os.replace(partial, self._folder / _OWNER)


def _read_key(folder: Path) -> str | None:
    try:
        told = json.loads((folder / _OWNER).read_bytes())
    except (OSError, ValueError):
        return None
    return told.get("key") if isinstance(told, dict) else None


def _unwritable(folder: Path, error: OSError) -> str:
    return (
        f"{folder}: unfinished scores can't be kept there ({error.strerror}); choose another folder"
        " with --out"
    )
