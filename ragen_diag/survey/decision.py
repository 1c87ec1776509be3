"""Keys of all rows -> what becomes of them, and what an analysis would refuse there.

Where an analysis stops, a survey says why and goes on by the most lenient choice.
"""

from contextlib import suppress
from dataclasses import replace

import polars as pl

from ragen_diag.dumps.decisions import Decided, decide
from ragen_diag.dumps.dump import Dump
from ragen_diag.dumps.keys import joined
from ragen_diag.dumps.ledger import Ledger
from ragen_diag.dumps.repeats import steps_written_again
from ragen_diag.errors import DumpError
from ragen_diag.settings import Reading
from ragen_diag.survey.facts import Problem, problem
from ragen_diag.survey.places import Places
from ragen_diag.survey.tally import Tally


def settle(dump: Dump, tally: Tally) -> tuple[Decided, list[Problem]]:
    """What becomes of all rows, of which there is at least one."""
    problems = _reward_problems(dump, tally)
    keys, reading = joined(tally.keys), dump.reading
    tally.keys.clear()
    if reading.split is not None and not _has_split(keys, reading.split):
        refusal = _refusal(keys, dump, reading)
        problems.append(problem("no_such_split", "error", str(refusal)))
        reading = replace(reading, split=None)
    try:
        decided = decide(keys, dump.dialect, dump.files, reading)
    except DumpError as error:
        problems.append(problem("step_written_twice", "error", str(error)))
        reading = replace(reading, on_duplicate_step="merge")
        decided = decide(keys, dump.dialect, dump.files, reading)
    else:
        problems += _written_twice(decided, keys, dump)
    try:
        dump.refuse_mixed_groups(decided)
    except DumpError as error:
        clash = decided.grouping.clash
        at = [] if clash is None else [clash.first, clash.second]
        places = Places(dump.files).of(decided.keys[at])
        problems.append(problem("mixed_groups", "error", str(error), places))
    return decided, problems


def _reward_problems(dump: Dump, tally: Tally) -> list[Problem]:
    ledger = tally.ledger
    path = str(dump.files[0])
    if not ledger.rewarded:
        # Where the columns that were not needed are damaged, fewer candidates are told.
        with suppress(DumpError):
            _look_for_candidates(dump, ledger)
    try:
        ledger.require_reward(path, dump.reading)
    except DumpError as error:
        if not ledger.rewarded:
            return [problem("no_reward", "error", str(error))]
        code = "too_many_bad_rewards" if ledger.numbers else "reward_is_no_number"
        return [problem(code, "error", str(error), ledger.places.get("bad_reward", []))]
    return []


def _look_for_candidates(dump: Dump, ledger: Ledger) -> None:
    """Only what is needed was read of tables; the reward may be called anything."""
    batch = next(dump.sources[0].batches(), None)
    if batch is not None:
        ledger.candidates |= dict.fromkeys(batch.candidates)
        ledger.filled = dict.fromkeys(batch.columns, 1) | ledger.filled


def _has_split(keys: pl.DataFrame, split: str) -> bool:
    return bool((keys["split"].cast(pl.String) == split).fill_null(False).any())


def _refusal(keys: pl.DataFrame, dump: Dump, reading: Reading) -> DumpError:
    try:
        decide(keys, dump.dialect, dump.files, reading)
    except DumpError as error:
        return error
    raise AssertionError("a dump without the split that was asked for is refused")


def _written_twice(decided: Decided, keys: pl.DataFrame, dump: Dump) -> list[Problem]:
    """The steps that were written twice and of which one writing was taken, or both."""
    if not decided.again:
        return []
    _, parts = steps_written_again(keys, dump.files)
    file_of = dict(pl.DataFrame([parts.alias("part"), keys["file"]]).unique().rows())
    again = decided.again
    first = again[0]
    files = [dump.files[file_of[part]] for part in (first.earlier, first.later)]
    where = f"in {files[0]} and in {files[1]}" if files[0] != files[1] else f"twice in {files[0]}"
    rest = f", and {len(again) - 1} more steps likewise" if len(again) > 1 else ""
    choice = dump.reading.on_duplicate_step
    done = "both were kept" if choice == "merge" else f"the {choice} was taken"
    message = (
        f"step {first.step} was written {where} ({first.rows_earlier} and {first.rows_later} rows)"
        f"{rest}, as by a run that was resumed; {done}: see --on-duplicate-step"
    )
    return [problem("step_written_twice", "warning", message, list(dict.fromkeys(map(str, files))))]
