"""The plain way of scoring every response under every prompt, as trainers do it in the loop.

What RAGEN computes (arXiv 2604.06268): for each prompt all responses behind it as whole sequences,
padded on the right to the longest response, 16 at a time; logits of every position and a
log-softmax in float32 of those that tell the response.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

BATCH = 16


def naive_logp(
    model: Any, prompt_ids_P: Sequence[Sequence[int]], reasoning_ids_R: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """(R, P) log-probabilities in nats, summed over the tokens of each response."""
    longest = max(map(len, reasoning_ids_R))
    ids_RT = torch.tensor([[*z, *[0] * (longest - len(z))] for z in reasoning_ids_R])
    length_R1 = torch.tensor([[len(z)] for z in reasoning_ids_R])
    real_RT = torch.arange(longest) < length_R1
    device = model.device
    with torch.inference_mode():
        columns = [
            torch.cat(
                [
                    _batch(model, torch.tensor(x, device=device), ids_BT, real_BT)
                    for ids_BT, real_BT in zip(
                        ids_RT.to(device).split(BATCH), real_RT.to(device).split(BATCH), strict=True
                    )
                ]
            )
            for x in prompt_ids_P
        ]
    result_RP: NDArray[np.float64] = torch.stack(columns, 1).double().cpu().numpy()
    return result_RP


def _batch(
    model: Any, prompt_S: torch.Tensor, ids_BT: torch.Tensor, real_BT: torch.Tensor
) -> torch.Tensor:
    prompt_BS = prompt_S.expand(len(ids_BT), -1)
    ids_BN = torch.cat([prompt_BS, ids_BT], 1)
    logits_BNV = model(
        input_ids=ids_BN,
        attention_mask=torch.cat([torch.ones_like(prompt_BS), real_BT.long()], 1),
        position_ids=torch.arange(ids_BN.shape[1], device=ids_BN.device).expand_as(ids_BN),
        use_cache=False,
    ).logits
    logp_BTV = logits_BNV[:, len(prompt_S) - 1 : -1].float().log_softmax(-1)
    logp_BT = logp_BTV.gather(2, ids_BT[:, :, None])[:, :, 0]
    return (logp_BT * real_BT).sum(1)
