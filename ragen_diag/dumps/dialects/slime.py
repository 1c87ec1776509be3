"""slime's `{rollout_id}.pt`: a dictionary with all samples of a rollout, texts and token ids.

`tokens` are those of prompt and response together. A response that called tools holds their text
as well; `loss_mask` is 0 there. The reward is a number or a dictionary.
"""

from collections.abc import Iterator
from typing import Any

from ragen_diag.dumps.dialect import Dialect, Draft, draft_by_names
from ragen_diag.dumps.dialects.episodes import fields, without
from ragen_diag.dumps.raw import RawTable, Record

NAMES = {
    "step": "step",
    "group_index": "group_id",
    "index": "sample_id",
    "prompt": "prompt",
    "response": "response",
    "prompt_ids": "prompt_ids",
    "response_ids": "response_ids",
    "rollout_log_probs": "rollout_logprobs",
    "label": "ground_truth",
    "status": "finish_reason",
}
INPUTS = ("multimodal_inputs", "multimodal_train_inputs")
UNFOLDED = ("tokens", "loss_mask", "rollout_routed_experts", *INPUTS)


def unfold(record: Record) -> Iterator[Record]:
    """The samples of a rollout, one row each; a record that is a sample itself is one."""
    if not isinstance(record.get("samples"), list):
        yield _row(record, record.get("rollout_id"))
        return
    for sample in record["samples"]:
        yield _row(fields(sample), record.get("rollout_id"))


def _row(sample: Record, rollout: Any) -> Record:
    step = sample.get("rollout_id") if rollout is None else rollout
    row = without(sample, *UNFOLDED, *(("rollout_id",) if sample.get("rollout_id") == step else ()))
    ids, flags = _split(sample)
    return {**row, **ids, "step": step, "_flags": [*flags, *_flags(sample)]}


def _split(sample: Record) -> tuple[Record, list[str]]:
    """The ids of prompt and response, unless their lengths contradict each other."""
    tokens, length = sample.get("tokens"), sample.get("response_length")
    if not tokens:
        return {}, []
    if not isinstance(tokens, list) or not isinstance(length, int):
        return {}, ["bad_token_ids"]
    start = len(tokens) - length
    if not 0 <= start <= len(tokens):
        return {}, ["bad_token_ids"]
    return {"prompt_ids": tokens[:start], "response_ids": tokens[start:]}, []


def _flags(sample: Record) -> Iterator[str]:
    mask = sample.get("loss_mask")
    trained = {bool(value) for value in mask} if isinstance(mask, list) else set()
    if trained == {True, False}:
        yield "tool_tokens_in_response"
    if sample.get("remove_sample") or trained == {False}:
        yield "not_trained_on"
    if any(sample.get(name) for name in INPUTS):
        yield "prompt_parts_left_out"


def draft(raw: RawTable) -> Draft:
    """Versions of the weights, lengths and metadata are kept as JSON."""
    return draft_by_names(raw, NAMES, reward=("reward",))


SLIME = Dialect(
    name="slime",
    signatures=(
        frozenset({"rollout_id", "samples"}),
        frozenset({"prompt", "response", "tokens", "response_length"}),
    ),
    draft=draft,
    unfold=unfold,
    telling=frozenset({"samples", "rollout_log_probs", "weight_versions"}),
    contiguous=True,
)
