"""Tiny random models of every kind in use, and rows to score with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from ragen_diag.scoring.columns import How
from ragen_diag.scoring.pairs import Pairs

VOCAB = 37
TOLERANCE = 2e-5
"""Nats per token, in float32."""

BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": None,
}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
GPT2 = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
GEMMA = BASE | {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8}
MLA = {
    "q_lora_rank": 16,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 6,
}
ALIBI_32 = {"vocab_size": VOCAB, "hidden_size": 32}

# name -> configuration class, its settings, the way of scoring that must be found
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama-gqa-tied": ("LlamaConfig", BASE | {"tie_word_embeddings": True}, "ragged"),
    "llama-yarn": ("LlamaConfig", BASE | {"rope_parameters": YARN}, "ragged"),
    "qwen2": ("Qwen2Config", BASE, "ragged"),
    "qwen2-window": (
        "Qwen2Config",
        BASE | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        "ragged",
    ),
    "qwen3": ("Qwen3Config", BASE | {"head_dim": 8}, "ragged"),
    "mistral-window": ("MistralConfig", BASE | {"sliding_window": 8}, "ragged"),
    "gemma2-softcap": (
        "Gemma2Config",
        GEMMA | {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 10.0},
        "ragged",
    ),
    "gemma3": ("Gemma3TextConfig", GEMMA | {"num_hidden_layers": 7}, "ragged"),
    "phi3": ("Phi3Config", BASE, "ragged"),
    "phi-biased-head": ("PhiConfig", BASE, "ragged"),
    "olmo2": ("Olmo2Config", BASE, "ragged"),
    "mixtral-moe": ("MixtralConfig", BASE | {"num_local_experts": 4}, "ragged"),
    "qwen2-moe": (
        "Qwen2MoeConfig",
        BASE | MOE | {"num_experts": 4, "shared_expert_intermediate_size": 16},
        "ragged",
    ),
    "qwen3-moe": ("Qwen3MoeConfig", BASE | MOE | {"num_experts": 4, "head_dim": 8}, "ragged"),
    "gpt2": ("GPT2Config", GPT2 | {"bos_token_id": 0, "eos_token_id": 0}, "ragged"),
    "gpt-neox": ("GPTNeoXConfig", BASE, "ragged"),
    "opt": (
        "OPTConfig",
        {"vocab_size": VOCAB, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2}
        | {"num_attention_heads": 4, "max_position_embeddings": 128, "word_embed_proj_dim": 32},
        "ragged",
    ),
    "granite-scaled": ("GraniteConfig", BASE | {"logits_scaling": 8.0}, "ragged"),
    "cohere-scaled": ("CohereConfig", BASE | {"logit_scale": 0.25}, "ragged"),
    "gpt-oss-sinks": (
        "GptOssConfig",
        BASE
        | {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
        | {"sliding_window": 8},
        "prefix",
    ),
    "falcon-alibi": (
        "FalconConfig",
        ALIBI_32 | {"num_hidden_layers": 2, "num_attention_heads": 4, "alibi": True},
        "prefix",
    ),
    "bloom-alibi": ("BloomConfig", ALIBI_32 | {"n_layer": 2, "n_head": 4}, "prefix"),
    "deepseek-mla": (
        "DeepseekV3Config",
        BASE
        | MLA
        | {"num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2}
        | {"n_group": 1, "topk_group": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 1},
        "ragged",
    ),
    "mamba": (
        "MambaConfig",
        {"vocab_size": VOCAB, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2},
        "full",
    ),
    "qwen3-next-hybrid": (
        "Qwen3NextConfig",
        BASE
        | MOE
        | {"num_experts": 4, "shared_expert_intermediate_size": 16, "head_dim": 8}
        | {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2}
        | {"linear_num_value_heads": 4, "num_hidden_layers": 4, "full_attention_interval": 4},
        "full",
    ),
    "dynamic-rope": (
        "LlamaConfig",
        BASE | {"max_position_embeddings": 16, "rope_parameters": DYNAMIC},
        "full",
    ),
}


@dataclass
class Rows:
    """Groups, as far as scoring knows them."""

    prompt_ids_P: list[list[int]]
    opening_ids_R: list[list[int]]
    reasoning_ids_R: list[list[int]]

    @property
    def turn_P(self) -> NDArray[np.int64]:
        return np.zeros(len(self.prompt_ids_P), dtype=np.int64)

    @property
    def own_R(self) -> NDArray[np.int64]:
        return np.arange(len(self.reasoning_ids_R)) % len(self.prompt_ids_P)

    @property
    def names(self) -> list[str]:
        return [f"r{r}" for r in range(len(self.reasoning_ids_R))]

    def lists(self) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
        return self.prompt_ids_P, self.opening_ids_R, self.reasoning_ids_R

    def pairs(self) -> Pairs:
        return Pairs(*self.lists())

    def n_tokens_R1(self) -> NDArray[np.int64]:
        return np.array([[len(z)] for z in self.reasoning_ids_R])


@dataclass
class Policy:
    model: Any
    dtype: str = "float32"
    device: str = "cpu"
    vocab_size: int = VOCAB


def tiny(name: str, **changes: Any) -> Any:
    """A random model; weights are enlarged so that every token depends on those before it."""
    kind, values, _ = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**values | changes)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for label, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.mul_(4)
            if label.endswith("bias") or "sinks" in label:
                weight.normal_()
    return model


def rows() -> Rows:
    """Prompts around a window of 8, two of which begin alike; rows with and without opening, of one
    token and of many, two of which begin alike."""
    rng = np.random.default_rng(0)

    def ids(lengths: Sequence[int]) -> list[list[int]]:
        return [rng.integers(0, VOCAB, n).tolist() for n in lengths]

    prompts = ids((6, 7, 8, 9, 1, 20))
    prompts[5][:9] = prompts[3]
    openings, reasoning = ids((0, 0, 2, 3, 0, 1, 5, 0)), ids((5, 1, 12, 4, 20, 2, 9, 5))
    reasoning.append([*reasoning[4][:13], *reasoning[2]])
    return Rows(prompts, [*openings, []], reasoning)


def how(model: Any, batch_tokens: int | None = None, temperature: float = 1.0) -> How:
    """How to score with a tiny model."""
    return How(
        model=model,
        dtype="float32",
        vocab_size=VOCAB,
        accelerator=False,
        batch_tokens=batch_tokens,
        temperature=temperature,
    )


def per_token(first_RP: Any, second_RP: Any, cross: Rows, fewest: int = 1) -> float:
    """The largest difference, nats per token."""
    n_tokens_R1 = np.maximum(cross.n_tokens_R1(), fewest)
    return float(np.max(np.abs(first_RP - second_RP) / n_tokens_R1))
