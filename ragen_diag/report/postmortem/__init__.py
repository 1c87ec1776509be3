"""The reports of a post-mortem: terminal, Markdown, one HTML page, figures, and their folder.

facts     a `Story` -> short texts that all renderers share
figures   a `Story` -> timeline, series and trajectory; a sweep -> two planes
terminal  the verdict in some twenty lines
markdown  `summary.md`
page      `postmortem.html` and `sweep.html`
folder    the out folder, whole or untouched
"""

from ragen_diag.report.postmortem.folder import (
    check_postmortem_folder,
    write_postmortem,
    write_sweep,
)
from ragen_diag.report.postmortem.terminal import print_postmortem, print_sweep

__all__ = [
    "check_postmortem_folder",
    "print_postmortem",
    "print_sweep",
    "write_postmortem",
    "write_sweep",
]
