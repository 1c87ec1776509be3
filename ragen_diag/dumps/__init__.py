"""Dump files of any known dialect -> `Rollouts`, the canonical table.

A new dialect is one file and one line in `DIALECTS`. Knows no models.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from ragen_diag.dumps.assembly import assemble
from ragen_diag.dumps.canonical import CANONICAL
from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.files import DumpFile, digest, find_files
from ragen_diag.dumps.grouping import assign_groups
from ragen_diag.dumps.jsonl import read_jsonl
from ragen_diag.dumps.raw import RawTable, read_parquet
from ragen_diag.dumps.trl import TRL
from ragen_diag.dumps.verl import VERL
from ragen_diag.errors import DumpError
from ragen_diag.rollouts import Rollouts

__all__ = ["DIALECTS", "read_dump"]

DIALECTS: tuple[Dialect, ...] = (
    CANONICAL,
    TRL,
    VERL,
)


def read_dump(paths: Sequence[str | Path], *, reward: str | None = None) -> Rollouts:
    """The rows of all dump files behind `paths`, files in natural order, rows as written.

    `reward` names the reward column or component, instead of the dialect's own. Rows without a
    usable reward, and everything else that was repaired, stay in and are counted in `notes`.

    Raises:
        DumpError: a file is missing, unreadable or of no known dialect; files of different
            dialects; no reward column; no rows; a step that column and name put differently; a
            group id of several prompts.
    """
    files = find_files(paths)
    raws = [_read(file) for file in files]
    raws = [raw for raw in raws if raw.frame.height]
    if not raws:
        raise DumpError(f"{files[0].path}: the dump holds no rows; name a file that does")
    dialect = _common_dialect(raws)
    drafts = [dialect.draft(raw, reward) for raw in raws]
    _require_reward(raws, drafts, reward)
    parts = [assemble(raw, draft) for raw, draft in zip(raws, drafts, strict=True)]
    table, group_notes = assign_groups(pl.concat(parts), contiguous=dialect.contiguous)
    notes = Counter(table["_flags"].explode().drop_nulls().to_list())
    for counts in (group_notes, *(raw.notes for raw in raws), *(draft.notes for draft in drafts)):
        notes.update(counts)
    return Rollouts(
        table=table,
        dialect=dialect.name,
        paths=tuple(str(path) for path in paths),
        sha256=digest(files),
        notes=dict(sorted(notes.items())),
    )


def _read(file: DumpFile) -> RawTable:
    return read_parquet(file.path) if file.kind == "parquet" else read_jsonl(file.path)


def _common_dialect(raws: Sequence[RawTable]) -> Dialect:
    found: dict[str, tuple[Dialect, Path]] = {}
    for raw in raws:
        dialect = _dialect_of(raw)
        found.setdefault(dialect.name, (dialect, raw.path))
    if len(found) > 1:
        where = ", ".join(f"{name} ({path})" for name, (_, path) in found.items())
        raise DumpError(f"files of different dialects: {where}; read them one dialect at a time")
    (dialect, _), *_ = found.values()
    return dialect


def _dialect_of(raw: RawTable) -> Dialect:
    columns = frozenset(raw.frame.columns)
    found = {d: s for d in DIALECTS if (s := d.signature_in(columns)) is not None}
    if not found:
        raise DumpError(
            f"{raw.path}: no known dialect; found columns {', '.join(raw.frame.columns)}; "
            "a dump needs prompt, response and reward (or input, output, score): rename the columns"
        )
    most = max(found.values(), key=len)
    if any(not signature <= most for signature in found.values()):
        named = " and ".join(f"{d.name} ({', '.join(sorted(s))})" for d, s in found.items())
        raise DumpError(f"{raw.path}: columns of several dialects, {named}; keep those of one")
    return next(dialect for dialect, signature in found.items() if signature == most)


def _require_reward(raws: Sequence[RawTable], drafts: Sequence[Draft], name: str | None) -> None:
    rewards = [draft.reward for draft in drafts if draft.reward is not None]
    candidates = dict.fromkeys(name for draft in drafts for name in draft.candidates)
    path = raws[0].path
    if not rewards and name is not None:
        listed = ", ".join(candidates) or "none"
        raise DumpError(f"{path}: no reward column '{name}'; candidates: {listed}")
    if not rewards:
        step = f"try --reward {next(iter(candidates))}" if candidates else "add one named 'reward'"
        columns = ", ".join(raws[0].frame.columns)
        raise DumpError(f"{path}: no reward column; found {columns}; {step}")
    instead = [reward.instead for reward in rewards]
    if all(instead):
        named = "" if name is None else f"'{name}' "
        raise DumpError(
            f"{path}: no value of the reward {named}is a number, but {instead[0]}; write one number"
            " per response, or name another column with --reward"
        )
