"""The command line: words in, exit code out. No maths, no file formats, no wording of verdicts.

Exit codes: 0 done · 1 a gate failed, nothing else · 2 usage, bad input, crash, could not judge ·
130 interrupted. Standard output carries data only; messages and progress go to standard error.
"""

import os
import sys
import traceback

import typer

from ragen_diag import __version__
from ragen_diag.cli.analyze import analyze
from ragen_diag.cli.schema import schema
from ragen_diag.errors import RagenDiagError

app = typer.Typer(
    name="ragen-diag",
    help="Diagnose reasoning collapse in RL post-training, offline, from rollouts and checkpoints.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(analyze)
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
    try:
        app()
    except RagenDiagError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader went away: nobody is left to tell. Point stdout at nothing so that the
        # interpreter's own flush at exit does not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    except Exception as error:
        if _debugging():
            traceback.print_exc()
        _fail(
            f"internal error: {type(error).__name__}: {error}; run again with RAGEN_DIAG_DEBUG=1"
            " for the traceback and please report it",
            2,
        )


def _fail(message: str, code: int) -> None:
    from ragen_diag.report.safetext import one_line

    sys.stderr.write(f"error: {one_line(message)}\n")
    sys.exit(code)


def _debugging() -> bool:
    return os.environ.get("RAGEN_DIAG_DEBUG", "") not in ("", "0")


def _make_streams_safe() -> None:
    """A stream that cannot encode a character shows a replacement instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
