"""A model and the files of an adapter -> one plain model, and in words what the adapter changes.

The only place that knows peft. Nothing is taken on trust: every weight of the file must be in the
model afterwards, and the merged model must give the log-probs of the model with its adapter.
"""

import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file

from ragen_diag.checkpoints.adapter import WEIGHTS, AdapterFiles
from ragen_diag.checkpoints.loading.libraries import told
from ragen_diag.checkpoints.weights import listed
from ragen_diag.errors import CheckpointError

HEADS = re.compile(r"(^|\.)(lm_head|embed_out|output)\.")
PROBE_TOKENS = 32
EXACT = (torch.float32, torch.float64)
LARGEST_ROUNDING = 0.01
"""Nats by which merging in an exact type may move a log-prob. The others round every weight, which
is told instead."""


def merge_adapter(model: Any, files: AdapterFiles) -> tuple[Any, str]:
    """The plain model that base and adapter are together, and a note on what that changed.

    `model` is used up.

    Raises:
        CheckpointError: weights of the file find no place in the model, the model needs others, or
            the merged model is not the same as the model with its adapter.
    """
    weights = load_file(files.path / WEIGHTS)
    ids = _probe_ids(model)
    before_T = _logp(model, ids)
    _resize(model, files)
    try:
        # What it warns of is looked for below, and an error.
        with warnings.catch_warnings(action="ignore"):
            adapted = _put_on(model, files)
            _require_all(adapted, weights, files)
            with_T = _logp(adapted, ids)
            merged = adapted.merge_and_unload(safe_merge=True)
    except CheckpointError:
        raise
    # A third party's code on a stranger's files, as in loading a model.
    except Exception as error:
        raise CheckpointError(
            f"{files.path}: can't be put on {_base(files)} ({told(error)}); is it the adapter's"
            " base? --base-model names another"
        ) from error
    merged = merged.eval().requires_grad_(False)
    merged_T = _logp(merged, ids)
    rounding = _rounding(files, merged.dtype, with_T, merged_T)
    return merged, _account(files, float((with_T - before_T).abs().mean()), rounding)


def _put_on(model: Any, files: AdapterFiles) -> Any:
    from peft import PeftModel

    if _touches_embeddings(model, files):
        # Else one change would be merged into both, which are one and the same tensor.
        head = model.get_output_embeddings()
        if head is not None and head.weight is model.get_input_embeddings().weight:
            head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    where = str(model.device)
    return PeftModel.from_pretrained(model, str(files.path), torch_device=where).eval()


def _touches_embeddings(model: Any, files: AdapterFiles) -> bool:
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    names = [name for name, module in model.named_modules() if any(module is end for end in ends)]
    return any(f".{name}." in weight for name in names for weight in files.shapes)


def _resize(model: Any, files: AdapterFiles) -> None:
    """Make room for added tokens, whose rows must all come with the adapter."""
    held, wanted = model.get_input_embeddings().weight.shape[0], files.embedding_rows
    if wanted is None or wanted == held:
        return
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    heads = [name for name in files.shapes if HEADS.search(name)]
    if wanted < held or not (heads or tied):
        raise CheckpointError(
            f"{files.path}: brings an embedding of {wanted} tokens, but {_base(files)} has {held}"
            f"{'' if heads or tied else ', and no head of that size'}; is it the adapter's base?"
            " --base-model names another"
        )
    model.resize_token_embeddings(wanted, mean_resizing=False)
    model.requires_grad_(False)


def _require_all(adapted: Any, weights: Mapping[str, torch.Tensor], files: AdapterFiles) -> None:
    """Every weight of the file is in the model, and the adapter in the model has no other."""
    from peft import get_peft_model_state_dict

    needed = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    held = needed | get_peft_model_state_dict(adapted, save_embedding_layers=True)
    made_up = [name for name in needed if name not in weights]
    unused = [name for name in weights if name not in held]
    changed = [
        name
        for name, weight in weights.items()
        if name in held and not torch.equal(held[name].cpu(), weight.to(held[name].dtype))
    ]
    for names, problem in (
        (made_up, "weights of the adapter are missing"),
        (unused, f"weights of the adapter have no place in {_base(files)}"),
        (changed, "weights of the adapter were not taken over"),
    ):
        if names:
            raise CheckpointError(
                f"{files.path}: {len(names)} {problem}: {listed(names)}; is {_base(files)} its"
                " base, and the folder whole? --base-model names another"
            )


def _rounding(
    files: AdapterFiles, dtype: torch.dtype, with_T: torch.Tensor, merged_T: torch.Tensor
) -> str:
    """What merging moved, in words where it rounds; an error where it is more than rounding."""
    moved = float((merged_T - with_T).abs().max())
    exact = dtype in EXACT
    if not moved <= (LARGEST_ROUNDING if exact else math.inf):
        raise CheckpointError(
            f"{files.path}: merged into {_base(files)} it moves a log-prob by {moved:.3g} nats"
            " against the unmerged adapter; merge it where it was trained and give the whole model"
        )
    kind = str(dtype).removeprefix("torch.")
    return "" if exact else f", and merging in {kind} rounds them by up to {moved:.2g}"


def _account(files: AdapterFiles, change: float, rounding: str) -> str:
    rank = "" if files.rank is None else f" of rank {files.rank}"
    what = f"{files.kind} adapter{rank} on {_base(files)}"
    if change == 0:
        return f"{what}: it changes no log-prob of {PROBE_TOKENS} tokens; an untrained one?"
    return (
        f"{what}: it moves the log-probs of {PROBE_TOKENS} tokens by {change:.2g} nats on average"
        f"{rounding}"
    )


def _probe_ids(model: Any) -> torch.Tensor:
    """The same ids every time, spread over the vocabulary."""
    size = int(model.get_input_embeddings().weight.shape[0])
    return torch.arange(PROBE_TOKENS + 1, device=model.device)[None] * 7919 % size


def _logp(model: Any, ids_1T: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        logits_TV: torch.Tensor = model(input_ids=ids_1T, use_cache=False).logits[0, :-1]
        logp_TV = torch.log_softmax(logits_TV.double(), -1)
        logp_T: torch.Tensor = logp_TV.gather(-1, ids_1T[0, 1:, None])[:, 0]
    return logp_T


def _base(files: AdapterFiles) -> str:
    return files.base.hub_id or str(files.base.path)
