"""Whether a model holds the weights of its files and no others. Knows neither torch nor files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragen_diag.errors import CheckpointError

HARMLESS = re.compile(
    r"rotary_emb\.inv_freq$"  # rotary frequencies, which config.json gives as well
    r"|\.(attn|attention)\.(masked_)?bias$"  # causal masks that old GPT models stored
    r"|^(v_head|value_head)\."  # a PPO trainer's value head beside the policy's own head
    r"|^(model\.)?mtp\."  # heads that draft further tokens and leave the next one alone
)
"""Names of weights that may be left unused: without them the model gives the same scores."""


def judge_weights(path: Path, info: Mapping[str, Any]) -> tuple[str, ...]:
    """Words on weights that were left out without harm, from the loading info of transformers.

    Raises:
        CheckpointError: weights that would be made up, or that are left out though they are part
            of some model: then config.json describes another one.
    """
    mismatched = [
        f"{name} ({_shape(held)} in the files, {_shape(wanted)} by config.json)"
        for name, held, wanted in info["mismatched_keys"]
    ]
    unused = info["unexpected_keys"]
    harmful = [name for name in unused if not HARMLESS.search(name)]
    whose = "is config.json of this checkpoint?"
    made_up = "they would have been made up, so copy or merge the checkpoint again"
    for names, problem, advice in (
        (mismatched, "weights have another shape", whose),
        (info["missing_keys"], "weights are missing", made_up),
        (
            harmful,
            "weights are in the files but not in the model that config.json describes",
            whose,
        ),
        (info.get("error_msgs", ()), "weights can't be converted", made_up),
    ):
        if names:
            raise CheckpointError(f"{path}: {len(names)} {problem}: {listed(names)}; {advice}")
    return (f"{len(unused)} weights not used: {listed(unused)}",) if unused else ()


def listed(keys: Any) -> str:
    """The first three names in order, and how many more there are."""
    names = sorted(map(str, keys))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _shape(shape: Any) -> str:
    return "x".join(map(str, shape)) or "a single number"
