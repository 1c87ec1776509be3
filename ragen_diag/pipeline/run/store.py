"""What is kept of every step of a run, so that a second post-mortem scores nothing again.

`steps/step_00040/` holds the result, the scores, the tables and the texts of one step, and a key of
all that they depend on, which is written last and removed first. Knows no model and no dump.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ragen_diag import __version__
from ragen_diag.errors import ResultError, UsageError
from ragen_diag.report.folder import UNFINISHED
from ragen_diag.report.product import Product
from ragen_diag.result import Result, read_result
from ragen_diag.scoring.journal import discard
from ragen_diag.scoring.scores import write_scores

KEY = "kept.json"
TABLES = ("responses", "groups", "texts")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One step as it is kept.

    `responses` and `groups` are the tables of `Product`. `texts` has a row per response:
    `response_id`, `prompt`, `response` and the `start` and `end` of its reasoning, null where it
    has none. `unscored` says why nothing was scored, `numerical` whether that is the model's own
    numbers.
    """

    result: Result
    responses: pl.DataFrame
    groups: pl.DataFrame
    texts: pl.DataFrame
    unscored: str | None = None
    numerical: bool = False


def digest(*parts: object) -> str:
    """A key of plain values, the tool's version among them."""
    text = json.dumps([__version__, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def rows_digest(table: pl.DataFrame) -> str:
    """A key of all values of a table, in order; where their file lies does not count."""
    table = table.drop("_file", strict=False)
    hashed = hashlib.sha256(repr(table.schema).encode())
    hashed.update(table.hash_rows(seed=1).to_numpy().tobytes())
    hashed.update(table.hash_rows(seed=2).to_numpy().tobytes())
    return hashed.hexdigest()


class Store:
    """The kept steps of one run, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def unfinished(self, step: int) -> Path:
        """Where the scores of a step are kept while they are made."""
        return self._home(step) / UNFINISHED

    def read(self, step: int, key: str) -> Kept | None:
        """A step that was kept under this key, or None."""
        home = self._home(step)
        try:
            noted = json.loads((home / KEY).read_text(encoding="utf-8"))
            if not isinstance(noted, dict) or noted.get("key") != key:
                return None
            tables = {name: pl.read_parquet(home / f"{name}.parquet") for name in TABLES}
            result = read_result(home / "result.json")
        except (OSError, ValueError, ResultError, pl.exceptions.PolarsError):
            # Not there, or damaged by something else than a stop: then it is made again.
            return None
        return Kept(
            result=result,
            unscored=noted.get("unscored"),
            numerical=bool(noted.get("numerical")),
            **tables,
        )

    def write(self, step: int, key: str, product: Product, kept: Kept) -> None:
        """Keep a step, all of it or nothing."""
        home = self._home(step)
        try:
            home.mkdir(parents=True, exist_ok=True)
            (home / KEY).unlink(missing_ok=True)
            for name in TABLES:
                getattr(kept, name).write_parquet(home / f"{name}.parquet")
            product.prompts.write_parquet(home / "prompts.parquet")
            if product.scores is None:
                (home / "scores.parquet").unlink(missing_ok=True)
            else:
                write_scores(product.scores, home / "scores.parquet")
            _write(home / "result.json", kept.result.to_json())
            noted = {"key": key, "unscored": kept.unscored, "numerical": kept.numerical}
            _write(home / KEY, json.dumps(noted) + "\n")
            discard(home / UNFINISHED)
        except OSError as error:
            raise UsageError(f"{home}: cannot be written ({error.strerror or error})") from error

    def noted(self, name: str) -> Mapping[str, Any]:
        """A small record of the whole run, empty if there is none."""
        with suppress(OSError, ValueError):
            found = json.loads((self._folder / f"{name}.json").read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
        return {}

    def note(self, name: str, values: Mapping[str, Any]) -> None:
        """Keep a small record of the whole run."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _write(self._folder / f"{name}.json", json.dumps(values, sort_keys=True) + "\n")
        except OSError as error:
            raise UsageError(
                f"{self._folder}: cannot be written ({error.strerror or error})"
            ) from error

    def _home(self, step: int) -> Path:
        return self._folder / f"step_{step:05d}"


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    os.replace(partial, path)
