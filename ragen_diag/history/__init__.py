"""The scalar log of a training run -> `History`: what the trainer itself saw at each step.

A log is optional, and is read as its trainer wrote it: JSON lines, CSV, `trainer_state.json`,
TensorBoard's event files, W&B's offline runs. Knows no rollouts and no metrics.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ragen_diag.history import events, lines, offline, tables, trainer_state
from ragen_diag.history.assembly import Assembly
from ragen_diag.history.history import Coverage, History, coverage
from ragen_diag.history.rows import Entry
from ragen_diag.history.source import Kind, find
from ragen_diag.history.tally import IN_A_SUBFOLDER, Tally

__all__ = ["Coverage", "History", "coverage", "read_history"]

_READERS: Mapping[Kind, Callable[[Path, Tally], Iterator[Entry]]] = {
    "jsonl": lines.read,
    "csv": tables.read,
    "trainer_state": trainer_state.read,
    "tensorboard": events.read,
    "wandb": offline.read,
}


def read_history(path: Path) -> History:
    """The log at a path: a file, or a folder that holds one.

    Raises:
        HistoryError: there is no log, or several; it is damaged beyond a tenth; it has no steps or
            no numbers; a package that its kind needs is not installed.
    """
    source = find(path)
    tally = Tally(left_out=Counter({IN_A_SUBFOLDER: source.beside}))
    assembly = Assembly(tally)
    for file in source.paths:
        assembly.extend(_READERS[source.kind](file, tally))
    return assembly.history(path, source)
