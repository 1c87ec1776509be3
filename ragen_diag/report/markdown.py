"""`summary.md`: the facts of the terminal and the tables of the page, for CI summaries and chats.

Comes in: a `Result`. Goes out: GitHub-flavoured Markdown. No rollout text is in it; every text is
escaped so that it can be neither markup nor HTML, nor break out of a table cell.
"""

import re
from collections.abc import Iterable, Sequence

from ragen_diag.metrics.reward import RewardSignal
from ragen_diag.report import facts, reward
from ragen_diag.report.numbers import plural
from ragen_diag.report.safetext import clip, inert, one_line
from ragen_diag.report.words import finding_words, regime_words
from ragen_diag.result import Result

_LONGEST = 1000
# Backslashes go where a character could open markup: emphasis, code, table cells, strikethrough,
# maths, mentions, links and addresses that GitHub links by itself.
_MARKUP = re.compile(
    r"([\\`*|~$@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|\[(?=\^)|\](?=[(\[:])|:(?=//)|(?<=www)\.)"
)
# The same at the start of a block: headings, lists, rules.
_BLOCK = re.compile(r"^(\d*)([#+=]|-(?!\d)|(?<=\d)[.)](?=\s))")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_@]*")


def render_markdown(result: Result) -> str:
    """The summary as Markdown text with a final newline."""
    words = regime_words(result.regime.label)
    blocks = [
        f"# {escape(words.title)}",
        escape(" ".join(part for part in (words.meaning, facts.candidates(result)) if part)),
        f"{escape(facts.subject(result))}  \n{escape(facts.scorer(result))}",
        _axes(result),
        _do(result),
        _findings(result),
        "## Numbers",
        *_metrics(result),
        "## Reward signal",
        _reward(result.reward),
        "## Left out",
        _left_out(result),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str) -> str:
    r"""Text as Markdown that shows exactly that text, on one line.

    >>> escape("a|b <i>*x*</i> [0.1, 0.2] [x](y) step_1")
    'a\\|b &lt;i&gt;\\*x\\*&lt;/i&gt; [0.1, 0.2] [x\\](y) step_1'
    """
    line = inert(one_line(clip(text, _LONGEST)))
    line = _BLOCK.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", line))
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(name: str) -> str:
    """A name of ours as code, anything else as escaped text."""
    return f"`{name}`" if _NAME.fullmatch(name) else escape(name)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "") -> str:
    """A table of escaped cells; `right` names the headings of the columns set to the right."""
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(" ---: " if name in right.split(",") else " --- " for name in head) + "|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _axes(result: Result) -> str:
    rows = []
    for axis in facts.axes(result):
        for check in (axis.deciding, *axis.others):
            name = axis.title if check is axis.deciding else ""
            cells = (
                name,
                check.state,
                check.label,
                check.value,
                check.interval,
                check.rule,
                check.source,
            )
            rows.append([escape(cell) for cell in cells])
    if not rows:
        return ""
    head = ("axis", "state", "metric", "value", "95 % interval", "rule", "source of the threshold")
    return table(head, rows)


def _do(result: Result) -> str:
    steps = facts.to_do(regime_words(result.regime.label), result)
    if not steps:
        return ""
    return "## What to do\n\n" + "\n".join(
        f"{number}. {escape(step)}" for number, step in enumerate(steps, start=1)
    )


def _findings(result: Result) -> str:
    found = facts.by_severity(result)
    heading, sentence = facts.doubts(result)
    lines = [f"## {heading}", "", *([sentence, ""] if sentence else [])]
    for finding in found:
        words = finding_words(finding.code)
        lines.append(
            f"- **{finding.severity}** {code(finding.code)} {escape(words.title)}:"
            f" {escape(finding.message)}"
        )
    return "\n".join(lines).rstrip()


def _metrics(result: Result) -> list[str]:
    head = ("metric", "value", "95 % interval", "n", "what it is")
    blocks = []
    for group, rows in facts.metric_groups(result):
        numbers = table(
            head,
            [
                [
                    _metric_name(row),
                    *map(escape, (row.value, row.interval, row.n, row.note)),
                ]
                for row in rows
            ],
            right="n",
        )
        blocks.append(f"### {group}\n\n{numbers}")
    return blocks


def _metric_name(row: facts.MetricFact) -> str:
    return code(row.name) if row.label == row.name else f"{escape(row.label)} {code(row.name)}"


def _reward(signal: RewardSignal) -> str:
    lines = [
        f"- {escape(reward.flat_groups(signal))}",
        f"- {escape(reward.applicability(signal))}",
    ]
    rows = reward.reward_rows(signal) + [
        (f"flat groups, {why}", n) for why, n in reward.flat_rows(signal)
    ]
    lines += [f"- {escape(label)}: {escape(value)}" for label, value in rows]
    buckets = [[escape(cell) for cell in row] for row in reward.bucket_rows(signal)]
    if not buckets:
        return "\n".join(lines)
    by_variance = table(reward.BUCKET_HEAD, buckets, right=",".join(reward.BUCKET_HEAD[1:]))
    return "\n".join(lines) + f"\n\n{by_variance}"


def _left_out(result: Result) -> str:
    left = facts.left_out(result)
    if not left:
        return f"Nothing: all of {plural(result.counts.rows, 'response')} were used."
    return "\n".join(f"- {n:,} {escape(reason)}" for reason, n in left)
