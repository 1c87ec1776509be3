"""SkyRL's evaluations, `global_step_{N}_evals/{data_source}.jsonl`: decoded with special tokens.

`score` is a number, or a list of rewards per token. Its training batches are pickles without
rewards, which are no dumps of rows.
"""

import polars as pl

from ragen_diag.dumps.dialect import Dialect, Draft, draft_by_names
from ragen_diag.dumps.raw import RawTable

NAMES = {
    "input_prompt": "prompt",
    "output_response": "response",
    "stop_reason": "finish_reason",
    "env_class": "env",
}


def draft(raw: RawTable) -> Draft:
    """Every row is of an evaluation; the environment's own values are kept as JSON."""
    found = draft_by_names(raw, NAMES, reward=("score",))
    split = pl.repeat("eval", raw.frame.height, dtype=pl.String, eager=True).alias("split")
    return Draft(columns={**found.columns, "split": split}, reward=found.reward, extra=found.extra)


SKYRL = Dialect(
    name="skyrl",
    signatures=(frozenset({"input_prompt", "output_response", "score"}),),
    draft=draft,
    telling=frozenset({"env_class", "env_extras", "stop_reason"}),
)
