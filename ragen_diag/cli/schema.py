"""`ragen-diag schema`: the JSON Schema of result.json."""

import json
import sys


def schema() -> None:
    """Print the JSON Schema of result.json."""
    from ragen_diag.result import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
