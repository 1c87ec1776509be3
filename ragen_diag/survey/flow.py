"""The whole flow of a survey: files -> keys, counts and a sample -> facts and problems.

The one place that knows every part. What an analysis would refuse becomes a problem here, and the
facts that can still be had are given.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen_diag.dumps.dump import Dump, open_dump
from ragen_diag.dumps.files import is_remote
from ragen_diag.dumps.recognition import UnknownDialect
from ragen_diag.dumps.streams import EmptyFile
from ragen_diag.errors import DumpError
from ragen_diag.judging.remarks.inputs import ATTENTION
from ragen_diag.settings import Reading
from ragen_diag.survey.decision import settle
from ragen_diag.survey.facts import SEVERITIES, File, Problem, Severity, Survey, problem
from ragen_diag.survey.files import absence_problems, file_facts, file_problems
from ragen_diag.survey.groups import group_problems
from ragen_diag.survey.material import Material
from ragen_diag.survey.preflight import check, fit_problems
from ragen_diag.survey.rewards import MISSING, reward_problems
from ragen_diag.survey.sampled import sample_problems
from ragen_diag.survey.steps import step_problems
from ragen_diag.survey.tally import Observer, Silent, Tally, read_through

_CERTAIN = ("named", "sure", "likely", "guessed")
_MOST_BROKEN = 3


def survey(
    paths: str | Path | Sequence[str | Path],
    reading: Reading | None = None,
    *,
    ckpt: str | None = None,
    tokenizer: str | None = None,
    base_model: str | None = None,
    observer: Observer | None = None,
) -> Survey:
    """What is in a dump, and whether an analysis of it, with its checkpoint, would be refused.

    All rows are read once, texts are not kept. What is wrong with the dump or the checkpoint is
    told as a problem; nothing of a model is loaded, and nothing downloaded.

    Raises:
        UsageError: a name in `reading` is none.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    named = tuple(str(path) for path in given)
    beside = [Path(path) for path in given if not is_remote(path)]
    found = check(ckpt, tokenizer, beside, base_model=base_model)
    try:
        dump = open_dump(given, reading or Reading())
    except DumpError as error:
        return _finished(named, [_unopened(error), *found.problems], checkpoint=found.checkpoint)
    tally = read_through(dump, observer or Silent())
    files = file_facts(dump, tally)
    about = _about(dump, files) | {"checkpoint": found.checkpoint}
    broken = _broken(tally)
    if not tally.ledger.rows:
        if not broken:
            message = f"{dump.files[0]}: the dump holds no rows; name a file that does"
            broken = [problem("no_rows", "error", message)]
        return _finished(named, [*broken, *found.problems], **about)
    decided, refusals = settle(dump, tally)
    material = Material(dump, tally, decided, found)
    problems = [*broken, *refusals, *found.problems, *file_problems(files)]
    problems += _problems(material, refusals, scored=ckpt is not None)
    problems += _reading_problems(material, {problem.code for problem in problems})
    return _finished(named, problems, **about, **material.facts())


def _finished(paths: tuple[str, ...], problems: Sequence[Problem], **facts: Any) -> Survey:
    ordered = sorted(problems, key=lambda problem: SEVERITIES.index(problem.severity))
    usable = all(problem.severity != "error" for problem in problems)
    return Survey(paths=paths, usable=usable, problems=tuple(ordered), **facts)


def _about(dump: Dump, files: tuple[File, ...]) -> dict[str, Any]:
    """What is known of a dump whose files were opened; its dialect is as sure as the least sure
    of them."""
    recognised = max(
        (source.recognised for source in dump.sources), key=lambda r: _CERTAIN.index(r.certainty)
    )
    return {
        "dialect": dump.dialect.name,
        "certainty": recognised.certainty,
        "grounds": recognised.grounds,
        "files": files,
        "files_passed_over": dict(dump.passed_over),
    }


def _problems(material: Material, refusals: Sequence[Problem], *, scored: bool) -> list[Problem]:
    """What speaks against the rows, the most telling parts first."""
    m, reward, sampled = material, material.reward, material.sampled
    refused = any("reward" in problem.code for problem in refusals)
    context = None if m.preflight.checkpoint is None else m.preflight.checkpoint.context
    too_long = 0 if context is None else sum(total > context for total in sampled.total_N)
    numbers = [step.step for step in m.steps]
    parts = [component.name for component in reward.components]
    return [
        *fit_problems(m.preflight, numbers, len(sampled.total_N), sampled.largest_id, too_long),
        *step_problems(m.steps, m.decided, m.places, scored=scored),
        *([] if refused else reward_problems(reward, m.tally)),
        *group_problems(m.sizes, m.sources, m.groups, m.keys, m.places),
        *absence_problems(m.absences, [reward.name or "", *parts]),
        *sample_problems(sampled),
        *_copies(m),
    ]


def _unopened(error: DumpError) -> Problem:
    code = "unreadable"
    if isinstance(error, UnknownDialect):
        code = "unknown_dialect"
    elif isinstance(error, EmptyFile):
        code = "empty_file"
    return problem(code, "error", str(error))


def _broken(tally: Tally) -> list[Problem]:
    """Files that were not read to their end; what was read of them counts."""
    problems = [problem("unreadable", "error", str(e)) for e in tally.broken[:_MOST_BROKEN]]
    more = len(tally.broken) - _MOST_BROKEN
    if more > 0:
        problems.append(problem("unreadable", "error", f"{more} more files cannot be read"))
    return problems


def _copies(material: Material) -> list[Problem]:
    copies = material.texts.exact_copies
    if not copies or material.dump.dialect.name != "verl":
        return []
    return [
        problem(
            "exact_copies",
            "note",
            f"{copies:,} rows equal an earlier one of their step in everything; verl-agent fills up"
            " its batches with such copies: if it wrote this dump, --dialect verl-agent leaves them"
            " out",
        )
    ]


def _reading_problems(material: Material, told: set[str]) -> list[Problem]:
    """What was repaired, inferred or left out at reading, unless it was told already."""
    places = {"file_passed_over": list(material.dump.passed_over), **material.tally.ledger.places}
    found = []
    for name, count in sorted(material.notes.items()):
        if name in told or name in MISSING or not count:
            continue
        message = f"{ATTENTION.get(name, name.replace('_', ' '))}: {count:,}"
        severity: Severity = "warning" if name in ATTENTION else "note"
        found.append(problem(name, severity, message, places.get(name, [])))
    return found
