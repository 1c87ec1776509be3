"""The command line: words in, exit code out. No maths, no file formats, no wording of verdicts.

Exit codes: 0 done · 1 a gate failed, nothing else · 2 usage, bad input, crash, could not judge ·
130 interrupted. Standard output carries data only; messages and progress go to standard error.
"""

import os
import sys
import traceback
import warnings
from contextlib import suppress
from typing import NoReturn

import typer

from ragen_diag import __version__
from ragen_diag.cli.analyze import analyze
from ragen_diag.cli.convert import convert
from ragen_diag.cli.convert_ckpt import convert_ckpt
from ragen_diag.cli.postmortem import postmortem
from ragen_diag.cli.schema import schema
from ragen_diag.cli.validate import validate
from ragen_diag.errors import RagenDiagError

_LONGEST, _TAIL = 2_000, 500
"""Characters of an error, and those of them at its end, where the next step stands."""

app = typer.Typer(
    name="ragen-diag",
    help="Diagnose reasoning collapse in RL post-training, offline, from rollouts and checkpoints.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(analyze)
app.command()(postmortem)
app.command()(validate)
app.command()(convert)
app.command()(convert_ckpt)
app.command()(schema)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ragen-diag {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options of every command."""


def main() -> None:
    """Run the command line; every failure becomes one line on stderr and its exit code."""
    _make_streams_safe()
    # The table engine says so of a bucket, and then finds its region.
    warnings.filterwarnings("ignore", message=".*region' not set")
    try:
        sys.exit(app(standalone_mode=False))
    except RagenDiagError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except BaseException as error:
        # What the table engine does not expect is no `Exception`.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        # Wrong words: the parser's own exceptions, which differ between its versions in all but
        # this method. Shown here so that they look like every other error.
        if hasattr(error, "format_message"):
            if not (message := error.format_message()):
                sys.exit(2)  # no words at all: the help was printed
            _fail(f"{message.rstrip('.')}; see ragen-diag --help", 2)
        if _debugging():
            traceback.print_exc()
        _fail(
            f"internal error: {type(error).__name__}: {error}; run again with RAGEN_DIAG_DEBUG=1"
            " for the traceback and please report it",
            2,
        )


def _fail(message: str, code: int) -> NoReturn:
    from ragen_diag.report.safetext import clip, inert, one_line

    line = clip(one_line(message), _LONGEST, tail=_TAIL)
    # Standard error may be closed or full; the exit code still tells.
    with suppress(OSError, AttributeError):
        sys.stderr.write(inert(f"error: {line}") + "\n")
        sys.stderr.flush()
    sys.exit(code)


def _debugging() -> bool:
    return os.environ.get("RAGEN_DIAG_DEBUG", "") not in ("", "0")


def _make_streams_safe() -> None:
    """A stream that cannot encode a character shows a replacement instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
