"""`rollouts.json` -> slices: R responses under P prompts, as token ids. Knows no model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragen_diag.scoring.pairs import Pairs

PATH = Path(__file__).with_name("rollouts.json")


@dataclass(frozen=True)
class Slice:
    """What `ragen_diag.scoring.score` needs of groups, and what the other contenders need."""

    name: str
    prompt_ids_P: list[list[int]]
    reasoning_ids_R: list[list[int]]
    own_R: NDArray[np.int64]

    @property
    def turn_P(self) -> NDArray[np.int64]:
        """All prompts are of one turn."""
        return np.zeros(len(self.prompt_ids_P), dtype=np.int64)

    @property
    def opening_ids_R(self) -> list[list[int]]:
        """Every token of a response is scored."""
        return [[] for _ in self.reasoning_ids_R]

    @property
    def pairs(self) -> Pairs:
        """Every response under every prompt."""
        return Pairs(self.prompt_ids_P, self.opening_ids_R, self.reasoning_ids_R)

    @property
    def plain_tokens(self) -> int:
        """Each prompt once and each response behind each prompt: what has to be read if nothing
        but the prompt is shared."""
        responses = sum(map(len, self.reasoning_ids_R))
        return sum(map(len, self.prompt_ids_P)) + len(self.prompt_ids_P) * responses

    def begun(self, tokens: int) -> "Slice":
        """The first tokens of everything, to warm up with."""
        return replace(
            self,
            prompt_ids_P=[ids[-tokens:] for ids in self.prompt_ids_P],
            reasoning_ids_R=[ids[:tokens] for ids in self.reasoning_ids_R],
        )

    def checked(self, count: int) -> list[tuple[int, int]]:
        """Row and column of some pairs whose exactness is looked at: the longest response, then
        ever shorter ones down to the middle, under one prompt after the other."""
        order = np.argsort([-len(ids) for ids in self.reasoning_ids_R], kind="stable")
        rows = np.linspace(0, len(order) // 2, count).round().astype(int)
        return [(int(order[r]), k % len(self.prompt_ids_P)) for k, r in enumerate(rows)]


def cut(kind: str, prompts: int, rows: int) -> Slice:
    """A slice of successive prompts, with as many answers to each as there have to be: short ones
    and long ones as among all.

    Of all such prompts those whose answers are nearest to all answers in mean length. Where their
    answers are too few, those to the prompts that follow are taken too, as the last one's. `kind`
    is "short", "long" or "collapsed", which is of the first prompts.
    """
    made = _read()
    if kind == "collapsed":
        chats = made["short"]["prompts"][:prompts]
        return _slice(kind, chats, [made["collapsed"][:rows]])
    chats, all_answers = made[kind]["prompts"], made[kind]["answers"]
    mean, most = _mean_length(all_answers), min(map(len, all_answers))
    asked = max(prompts, -(-rows // most))
    windows = []
    for first in range(len(chats) - asked + 1):
        some = all_answers[first : first + asked]
        answers = [_spread(own, rows // asked) for own in some]
        windows.append((abs(_mean_length(answers) - mean), first, answers))
    _, first, answers = min(windows)
    last = [row for own in answers[prompts - 1 :] for row in own]
    return _slice(kind, chats[first : first + prompts], [*answers[: prompts - 1], last])


def _mean_length(answers: Sequence[list[list[int]]]) -> float:
    return float(np.mean([len(row) for own in answers for row in own]))


def _spread(answers: list[list[int]], count: int) -> list[list[int]]:
    by_length = sorted(range(len(answers)), key=lambda r: len(answers[r]))
    places = [int((k + 0.5) * len(answers) / count) for k in range(count)]
    return [answers[r] for r in sorted(by_length[place] for place in places)]


def _slice(kind: str, prompts: list[list[int]], answers: Sequence[list[list[int]]]) -> Slice:
    rows = [row for some in answers for row in some]
    own = [p for p, some in enumerate(answers) for _ in some]
    return Slice(f"{kind} {len(prompts)}x{len(rows)}", prompts, rows, np.array(own))


@cache
def _read() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(PATH.read_text())
    return made
