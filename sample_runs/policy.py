"""The policy: a 0.58M-parameter Llama over whole words, its tokenizer, checkpoints and sampling."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from task import vocabulary
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MAX_NEW_TOKENS = 60
WORDS = vocabulary()
TOKEN_ID = {word: index for index, word in enumerate(WORDS)}
EOS = TOKEN_ID["</answer>"]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Whole words split at whitespace; no post-processor, so encoding adds nothing to the text."""
    tokenizer = Tokenizer(models.WordLevel(TOKEN_ID, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(
        [AddedToken(word, normalized=False) for word in ("<pad>", "<s>", "<unk>")]
    )
    # Not special: decoding with skip_special_tokens must keep the tags that delimit the reasoning.
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    tokenizer.add_tokens([AddedToken(word, normalized=False, special=False) for word in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</answer>",
        pad_token="<pad>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        model_max_length=128,
    )


def encode(text: str) -> list[int]:
    return [TOKEN_ID[word] for word in text.split()]


def decode(ids: list[int]) -> str:
    return " ".join(WORDS[index] for index in ids)


def build_model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=TOKEN_ID["<s>"],
        eos_token_id=EOS,
        pad_token_id=TOKEN_ID["<pad>"],
    )
    return LlamaForCausalLM(config)


def rounded(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """A float32 copy with the weights that a bfloat16 checkpoint of the model would hold.

    Dumps are sampled from it, so that whoever loads the checkpoint scores with the sampler itself.
    """
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict(
        {name: value.bfloat16().float() for name, value in model.state_dict().items()}
    )
    return copy.eval()


def save_checkpoint(model: LlamaForCausalLM, folder: Path) -> None:
    stored = LlamaForCausalLM(model.config)
    stored.load_state_dict(model.state_dict())
    stored.bfloat16().save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    # transformers 5 writes a class name that transformers 4 does not know; both know this one.
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def load_checkpoint(folder: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


@dataclass
class Sample:
    """One response: token ids, their log-probabilities when sampled, whether it ended itself."""

    ids: list[int]
    logprobs: list[float]
    stopped: bool


@torch.no_grad()
def sample(model: LlamaForCausalLM, prompts: list[str], copies: int, seed: int) -> list[Sample]:
    """Draw `copies` responses per prompt, prompts in order: temperature 1, no top-p, no top-k.

    Finished rows leave the batch, so the cost follows the mean response length, not the longest.
    """
    generator = torch.Generator().manual_seed(seed)
    samples = [Sample([], [], stopped=False) for _ in range(len(prompts) * copies)]
    alive = torch.arange(len(samples))
    cache = DynamicCache(config=model.config)
    prompt_ids = torch.tensor([encode(prompt) for prompt in prompts])
    logits = model(prompt_ids, cache=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
    cache.batch_repeat_interleave(copies)
    logits = logits.repeat_interleave(copies, dim=0)
    for _ in range(MAX_NEW_TOKENS):
        logprobs = logits.float().log_softmax(-1)
        tokens = torch.multinomial(logprobs.exp(), 1, generator=generator)
        chosen = logprobs.gather(1, tokens)[:, 0].tolist()
        for row, token, logprob in zip(alive.tolist(), tokens[:, 0].tolist(), chosen, strict=True):
            samples[row].ids.append(token)
            samples[row].logprobs.append(logprob)
            samples[row].stopped = token == EOS
        going = (tokens[:, 0] != EOS).nonzero()[:, 0]
        if len(going) == 0:
            break
        if len(going) < len(alive):
            cache.batch_select_indices(going)
            alive, tokens = alive[going], tokens[going]
        logits = model(tokens, cache=cache, use_cache=True).logits[:, -1]
    return samples


def pad_right(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Token ids and a mask of the real ones, both (B, T)."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [TOKEN_ID["<pad>"]] * (width - len(row)) for row in rows])
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows])
    return ids, mask
