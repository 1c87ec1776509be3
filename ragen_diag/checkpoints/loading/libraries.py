"""What the model libraries say: kept off the terminal, and their errors on one line."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import huggingface_hub
import transformers


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries' progress bars and advice off the terminal; errors are raised as ever."""
    logging: Any = transformers.utils.logging
    hub: Any = huggingface_hub.utils
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_bars = not hub.are_progress_bars_disabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
        if hub_bars:
            hub.enable_progress_bars()


def told(error: Exception) -> str:
    """Kind and words of a library's error on one line."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return textwrap.shorten(words, 300, placeholder=" ...")
