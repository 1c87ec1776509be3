"""Who is told what happens during an analysis, and may stop it. Knows no terminal."""

from typing import Protocol

from ragen_diag.result import CheckpointInput, DumpInput


class Observer(Protocol):
    """Who is told what happens while it happens."""

    def note(self, text: str) -> None:
        """A choice that was made."""

    def inputs(self, dump: DumpInput, checkpoint: CheckpointInput | None) -> None:
        """What is analysed is known, and nothing expensive has begun; may raise to stop it."""

    def pairs(self, done: int, total: int) -> None:
        """(response, prompt) pairs scored so far."""


class Silent:
    """An observer that says nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def inputs(self, dump: DumpInput, checkpoint: CheckpointInput | None) -> None:
        """Nothing."""

    def pairs(self, done: int, total: int) -> None:
        """Nothing."""
