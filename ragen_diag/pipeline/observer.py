"""Who is told what happens during an analysis, and may stop it. Knows no terminal."""

from pathlib import Path
from typing import Protocol

from ragen_diag.result import CheckpointInput, DumpInput
from ragen_diag.scoring import Progress


class Observer(Protocol):
    """Who is told what happens while it happens."""

    def note(self, text: str) -> None:
        """A choice that was made."""

    def inputs(self, dump: DumpInput, checkpoint: CheckpointInput | None) -> None:
        """What is analysed is known, and nothing expensive has begun; may raise to stop it."""

    def unfinished(self) -> Path | None:
        """Where scores may be kept until all are there, so that a stopped run can go on."""

    def scored(self, progress: Progress) -> None:
        """How far the scoring is."""


class Silent:
    """An observer that says nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def inputs(self, dump: DumpInput, checkpoint: CheckpointInput | None) -> None:
        """Nothing."""

    def unfinished(self) -> Path | None:
        """Nowhere."""
        return None

    def scored(self, progress: Progress) -> None:
        """Nothing."""
