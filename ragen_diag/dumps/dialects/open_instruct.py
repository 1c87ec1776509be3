"""open-instruct's `{run}_rollouts_{shard}.jsonl`: token ids without any text.

`prompt_idx` counts the prompts of one step and begins anew in the next. The ground truth is token
ids as well.
"""

from ragen_diag.dumps.dialect import Dialect, Draft, draft_by_names
from ragen_diag.dumps.raw import RawTable

NAMES = {
    "step": "step",
    "prompt_idx": "group_id",
    "sample_idx": "sample_id",
    "prompt_tokens": "prompt_ids",
    "response_tokens": "response_ids",
    "logprobs": "rollout_logprobs",
    "advantage": "advantage",
    "finish_reason": "finish_reason",
    "dataset": "env",
    "ground_truth": "ground_truth",
}


def draft(raw: RawTable) -> Draft:
    """What a request met with is kept as JSON."""
    return draft_by_names(raw, NAMES, reward=("reward",))


OPEN_INSTRUCT = Dialect(
    name="open-instruct",
    signatures=(frozenset({"prompt_idx", "prompt_tokens", "response_tokens"}),),
    draft=draft,
    telling=frozenset({"prompt_idx", "request_info"}),
    contiguous=True,
)
