"""`ragen-diag schema`: the JSON Schemas of result.json, postmortem.json and sweep.json."""

import json
import sys
from typing import Annotated, Literal

import typer

from ragen_diag.cli.streams import data_on_stdout


def schema(
    of: Annotated[
        Literal["result", "postmortem", "sweep"],
        typer.Argument(help="Which file: result.json, postmortem.json or sweep.json."),
    ] = "result",
) -> None:
    """Print the JSON Schema of result.json, postmortem.json or sweep.json."""
    if of == "postmortem":
        from ragen_diag.postmortem.model import json_schema
    elif of == "sweep":
        from ragen_diag.postmortem.sweep import json_schema
    else:
        from ragen_diag.result import json_schema

    with data_on_stdout():
        sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
