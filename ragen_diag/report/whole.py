"""Files of an out folder, all of them or none: made beside their place and then moved.

Comes in: a function that renders into an empty folder. Goes out: files under known names. Knows no
results and no formats.
"""

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ragen_diag.errors import UsageError

REMEDY = "choose another folder with --out, or replace them with --force"


def present_of(out_dir: Path, files: Sequence[str]) -> list[str]:
    """Those of `files` that are there already.

    Raises:
        UsageError: `out_dir` is no folder, or one of the files is a folder.
    """
    try:
        if out_dir.exists() and not out_dir.is_dir():
            raise UsageError(f"{out_dir}: not a folder; choose another with --out")
        present = [name for name in files if (out_dir / name).exists()]
    except OSError as error:
        raise UsageError(f"{out_dir}: {error.strerror}; choose another with --out") from error
    if taken := [name for name in present if (out_dir / name).is_dir()]:
        raise UsageError(f"{out_dir}: {taken[0]} is a folder there; choose another with --out")
    return present


def write_whole(
    out_dir: Path,
    files: Sequence[str],
    render: Callable[[Path], None],
    after: Callable[[], None] = lambda: None,
) -> list[Path]:
    """Let `render` write into a temporary folder, then move what it wrote of `files` in order.

    Those of `files` that it did not write are removed from `out_dir`; others are left alone.
    `after` follows the moves and cannot be interrupted either. If rendering fails nothing is left
    behind.

    Raises:
        UsageError: the folder cannot be written.
    """
    # Beside the target where there is none yet, inside it otherwise: moves must not cross a mount.
    home = out_dir if out_dir.exists() else out_dir.parent
    try:
        with _made(home), tempfile.TemporaryDirectory(prefix=".ragen-diag-", dir=home) as drafts:
            render(Path(drafts))
            with _uninterrupted():
                moved = _move(Path(drafts), out_dir, files)
                after()
                return moved
    except OSError as error:
        raise UsageError(f"{out_dir}: cannot be written ({error.strerror or error})") from error


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A folder that exists inside; the parts that had to be made are gone again after an error."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for part in missing:
            if not any(part.iterdir()):
                part.rmdir()
        raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until all files are in their places, which takes a few renames."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def write_text(path: Path, text: str) -> None:
    """Text as UTF-8 with plain line ends, equal on every system."""
    path.write_text(text, encoding="utf-8", newline="\n")


def _move(drafts: Path, out_dir: Path, files: Sequence[str]) -> list[Path]:
    """Move what was rendered to its place, after removing what is ours and was not rendered."""
    out_dir.mkdir(parents=True, exist_ok=True)
    moved = []
    for name in files:
        if (drafts / name).exists():
            (out_dir / name).parent.mkdir(exist_ok=True)
            os.replace(drafts / name, out_dir / name)
            moved.append(out_dir / name)
        else:
            (out_dir / name).unlink(missing_ok=True)
    return moved
