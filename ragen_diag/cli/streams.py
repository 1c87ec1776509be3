"""Standard output as the place of data alone, and what happens when it goes away."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ragen_diag.errors import UsageError


@contextmanager
def data_on_stdout() -> Iterator[None]:
    """Write data inside; a reader that has read enough is no failure, a full disk is.

    Raises:
        UsageError: standard output takes no data.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads on. The interpreter's own flush at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(f"standard output takes no data: {error.strerror}") from error


def write_json(text: str) -> None:
    """Print a JSON document, the same in other letters where a text in it is a CI command.

    Runners take "##[" for one wherever it stands in a line.
    """
    sys.stdout.write(text.replace("##[", r"#\u0023["))
