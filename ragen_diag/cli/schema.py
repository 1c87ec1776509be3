"""`ragen-diag schema`: the JSON Schema of result.json."""

import json
import sys

from ragen_diag.cli.streams import data_on_stdout


def schema() -> None:
    """Print the JSON Schema of result.json."""
    from ragen_diag.result import json_schema

    with data_on_stdout():
        sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
