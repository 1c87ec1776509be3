"""How far scoring is, for whoever waits for it. Knows no model and imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Pairs of distinct rows, and tokens of rows fed for them: scored, in all, and how many of the
    scored ones an earlier run that was stopped had done already."""

    pairs: int
    pairs_in_all: int
    tokens: int
    resumed_pairs: int


@dataclass(frozen=True)
class Step:
    """A column of a piece is done: its pairs and row tokens; `resumed` if an earlier run did it."""

    pairs: int
    tokens: int
    resumed: bool


def count_steps(
    on_progress: Callable[[Progress], None] | None, pairs_in_all: int
) -> Callable[[Step], None]:
    """What is to be told of every step, so that `on_progress` hears how far all of them are."""
    done = Progress(0, pairs_in_all, 0, 0)

    def advance(step: Step) -> None:
        nonlocal done
        done = Progress(
            done.pairs + step.pairs,
            pairs_in_all,
            done.tokens + step.tokens,
            done.resumed_pairs + (step.pairs if step.resumed else 0),
        )
        if on_progress is not None:
            on_progress(done)

    return advance
