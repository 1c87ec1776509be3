"""Phrases that came to be shared across prompts between two steps: what a template is made of.

Comes in: prompt and text of every response of each step. Goes out: a few phrases with their shares.
A phrase is a run of three to eight units: words between white space, or single characters in
scripts that write no blanks. White space is normalised, case kept.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import comb

from ragen_diag.metrics.text import normal

SHORTEST, LONGEST = 3, 8
"""Units of a phrase."""
LEAST_RISE = 0.2
"""Of the share of prompts; ours."""
ALPHA = 0.05
"""Of Fisher's exact test, shared by all phrases that were looked at (Bonferroni)."""
MOST = 10

Rows = Sequence[tuple[Hashable, str]]
Gram = tuple[str, ...]

# Thai to Lao, Burmese, Khmer; Chinese and Japanese with their punctuation.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
)
_UNIT = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")


@dataclass(frozen=True)
class Phrase:
    """A phrase as it stands in the text; `share_*` of responses, `prompts_*` of prompts, 0..1."""

    text: str
    share_before: float
    share_after: float
    prompts_before: float
    prompts_after: float

    @property
    def rise(self) -> float:
        """Of the share of prompts."""
        return self.prompts_after - self.prompts_before


def shared_phrases(before: Rows, after: Rows) -> list[Phrase]:
    """At most ten phrases, those whose share of prompts rose most first.

    Rows are (prompt, text). A prompt has a phrase if one of its responses has it; of each prompt
    as many responses are looked at as both steps have for most, or the step of larger groups would
    have more of everything. The rise is by a fifth of the prompts at least, and beyond chance:
    Fisher's exact test, one-sided, Bonferroni over all phrases that enough prompts share
    afterwards. A phrase of which half was told before (of its neighbouring pairs of units) is left
    out; of equal rises the longest comes first. What a response copies of its prompt counts too: a
    phrase that stands in most prompts tells them apart no better. Empty if a step has no rows.
    """
    if not before or not after:
        return []
    depth = min(_usual_rows(before), _usual_rows(after))
    first, second = _Step(before, depth), _Step(after, depth)
    shared = second.shared(least=max(2, LEAST_RISE * second.prompts))
    known = first.counts(shared)
    risen: list[tuple[Gram, Phrase]] = []
    for gram, after_count in shared.items():
        before_count = known.get(gram, _Count())
        phrase = Phrase(
            text=second.written(gram, after_count),
            share_before=before_count.rows / len(before),
            share_after=after_count.rows / len(after),
            prompts_before=len(before_count.prompts) / first.prompts,
            prompts_after=len(after_count.prompts) / second.prompts,
        )
        chance = _chance(
            len(after_count.prompts), second.prompts, len(before_count.prompts), first.prompts
        )
        if phrase.rise >= LEAST_RISE and chance * len(shared) < ALPHA:
            risen.append((gram, phrase))
    risen.sort(key=lambda one: (-round(one[1].rise, 1), -len(one[0]), one[0]))
    return _told_once(risen)


def _usual_rows(rows: Rows) -> int:
    return max(1, round(len(rows) / len({prompt for prompt, _ in rows})))


@dataclass
class _Count:
    """Where a phrase is: in how many rows, in which prompts, and the first row."""

    rows: int = 0
    prompts: set[Hashable] = field(default_factory=set)
    first_row: int = 0


class _Step:
    """The texts of one step as units; the first `depth` rows of a prompt count for it."""

    def __init__(self, rows: Rows, depth: int) -> None:
        self._texts = [normal(text) for _, text in rows]
        self._units = [_UNIT.findall(text) for text in self._texts]
        self._prompt = [prompt for prompt, _ in rows]
        seen: dict[Hashable, int] = defaultdict(int)
        self._counted = []
        for prompt in self._prompt:
            self._counted.append(seen[prompt] < depth)
            seen[prompt] += 1
        self.prompts = len(seen)

    def shared(self, least: float) -> dict[Gram, _Count]:
        """All phrases of at least `least` prompts.

        Length by length: a phrase cannot be commoner than the shorter ones it begins and ends with.
        """
        found: dict[Gram, _Count] = {}
        begin_R = self._begins()
        for length in range(1, LONGEST + 1):
            counts = self._count(length, begin_R)
            common = {g: one for g, one in counts.items() if len(one.prompts) >= least}
            begin_R = self._longer(length, begin_R, common)
            if length >= SHORTEST:
                found |= common
        return found

    def counts(self, wanted: Collection[Gram]) -> dict[Gram, _Count]:
        """The phrases of `wanted` that are here; with each phrase its beginning and its end are
        wanted."""
        found: dict[Gram, _Count] = {}
        begin_R = self._begins()
        for length in range(SHORTEST, LONGEST + 1):
            here = self._count(length, begin_R, wanted)
            begin_R = self._longer(length, begin_R, here)
            found |= here
        return found

    def _begins(self) -> list[list[int]]:
        return [list(range(len(units))) for units in self._units]

    def _longer(
        self, length: int, begin_R: list[list[int]], live: Collection[Gram]
    ) -> list[list[int]]:
        """Where phrases one unit longer may begin: where one of `live` does, and at the next."""
        longer_R = []
        for units, begins in zip(self._units, begin_R, strict=True):
            here = {at for at in begins if tuple(units[at : at + length]) in live}
            longer_R.append([at for at in begins if at in here and at + 1 in here])
        return longer_R

    def _count(
        self, length: int, begin_R: list[list[int]], wanted: Collection[Gram] | None = None
    ) -> dict[Gram, _Count]:
        """The phrases of one length that begin at these places, of `wanted` if given."""
        counts: dict[Gram, _Count] = {}
        for row, (units, begins) in enumerate(zip(self._units, begin_R, strict=True)):
            last = len(units) - length
            for gram in {tuple(units[at : at + length]) for at in begins if at <= last}:
                if wanted is not None and gram not in wanted:
                    continue
                one = counts.get(gram)
                if one is None:
                    one = counts[gram] = _Count(first_row=row)
                one.rows += 1
                if self._counted[row]:
                    one.prompts.add(self._prompt[row])
        return counts

    def written(self, gram: Gram, count: _Count) -> str:
        """The phrase as it stands in its first row: with its blanks, or without."""
        text, units = self._texts[count.first_row], self._units[count.first_row]
        places = [match.span() for match in _UNIT.finditer(text)]
        at = next(i for i in range(len(units)) if tuple(units[i : i + len(gram)]) == gram)
        return text[places[at][0] : places[at + len(gram) - 1][1]]


def _chance(after: int, all_after: int, before: int, all_before: int) -> float:
    """Fisher's exact test, one-sided: so many or more of the prompts with the phrase afterwards."""
    with_it, total = after + before, all_after + all_before
    ways = sum(
        comb(with_it, k) * comb(total - with_it, all_after - k)
        for k in range(after, min(with_it, all_after) + 1)
    )
    return ways / comb(total, all_after)


def _told_once(risen: Sequence[tuple[Gram, Phrase]]) -> list[Phrase]:
    told: set[Gram] = set()
    kept: list[Phrase] = []
    for gram, phrase in risen:
        runs = list(pairwise(gram))
        if 2 * sum(run in told for run in runs) >= len(runs):
            continue
        told.update(runs)
        kept.append(phrase)
        if len(kept) == MOST:
            break
    return kept
