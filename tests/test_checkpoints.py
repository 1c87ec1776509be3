"""Finding a checkpoint, judging its files before loading, and loading nothing made up."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub import errors as hub_errors
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from ragen_diag.checkpoints.layouts import inspect
from ragen_diag.checkpoints.load import choose_device, choose_dtype, open_checkpoint
from ragen_diag.checkpoints.locate import Located, locate, parse_step
from ragen_diag.checkpoints.weights import judge_weights
from ragen_diag.errors import CheckpointError, UsageError

WORDS = {word: i for i, word in enumerate(["<unk>", "up", "down", "left", "right"])}


def touch(*paths: Path, text: str = "x") -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def save_model(folder: Path, *, dtype: torch.dtype = torch.bfloat16, **changes: Any) -> Path:
    """A tiny Llama with its tokenizer, as a trainer's save_pretrained writes it."""
    torch.manual_seed(0)
    values = {
        "vocab_size": 5,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
    }
    config = transformers.LlamaConfig(**values | changes)
    model = transformers.LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(folder, max_shard_size="5KB" if changes else "1GB")
    words = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(
        folder
    )
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    transformers.utils.logging.disable_progress_bar()
    return save_model(tmp_path / "checkpoint-400")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    transformers.utils.logging.disable_progress_bar()
    return save_model(tmp_path / "step_7", tie_word_embeddings=True)


def edit_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def opened(folder: Path, **options: Any) -> Any:
    return open_checkpoint(locate(str(folder), []), **options)


# Where a checkpoint is.


@pytest.mark.parametrize(
    "name, step",
    [
        ("step_400", 400),
        ("step_00400", 400),
        ("global_step_400", 400),
        ("global_step400", 400),
        ("checkpoint-400", 400),
        ("iter_0000400", 400),
        ("epoch1epochstep3globalstep400", 400),
        ("global_step400_hf", 400),
        ("step_0", 0),
        ("Llama-3", None),
        ("footstep_3", None),
        ("final", None),
    ],
)
def test_step_in_a_name(name: str, step: int | None) -> None:
    assert parse_step(name) == step


@pytest.mark.parametrize("asked", ["step_400", "400", "global_step_400", "checkpoint-0400"])
@pytest.mark.parametrize(
    "place",
    ["step_00400", "checkpoints/step_00400", "ckpts/checkpoint-400", "global_step_400/actor"],
)
def test_a_name_is_found_near_the_dump(tmp_path: Path, asked: str, place: str) -> None:
    dump = tmp_path / "run" / "rollouts" / "400.jsonl"
    touch(dump, tmp_path / "run" / place / "model.safetensors")
    touch(tmp_path / "run" / "checkpoints" / "step_4000" / "model.safetensors")
    located = locate(asked, [dump])
    assert located.path == tmp_path / "run" / place
    assert located.step == 400 and located.hub_id is None
    assert str(located.path) in located.how and asked in located.how


def test_the_nearest_of_several_is_taken_and_the_others_told(tmp_path: Path) -> None:
    dump = tmp_path / "a" / "run" / "rollouts" / "x.parquet"
    near, far = tmp_path / "a" / "run" / "checkpoints" / "step_5", tmp_path / "a" / "step_0005"
    touch(dump, near / "config.json", far / "config.json")
    touch(tmp_path / "a" / "run" / "rollouts" / "step_5" / "part.parquet")
    located = locate("step_5", [dump])
    assert located.path == near
    assert f"also there: {far}" in located.how


def test_an_existing_path_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "here" / "step_5" / "config.json", tmp_path / "run" / "step_5" / "config.json")
    monkeypatch.chdir(tmp_path / "here")
    assert locate("step_5", [tmp_path / "run"]).path == Path("step_5")


@pytest.mark.parametrize(
    "files, taken",
    [
        # verl with LoRA: the adapter beside the shards of base and adapter together.
        (
            ["actor/model_world_size_1_rank_0.pt", "actor/lora_adapter/adapter_model.safetensors"],
            "actor/lora_adapter",
        ),
        # verl: data.pt of the data loader beside actor/, no weights in huggingface/.
        (
            ["data.pt", "actor/model_world_size_1_rank_0.pt", "actor/huggingface/config.json"],
            "actor",
        ),
        (["data.pt", "actor/optim.pt", "actor/huggingface/model.safetensors"], "actor/huggingface"),
        (["weight/model.safetensors", "trainer/.metadata"], "weight"),
        (["policy/model.safetensors"], "policy"),
        (["model.safetensors", "global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt"], ""),
    ],
)
def test_the_model_inside_a_step(tmp_path: Path, files: list[str], taken: str) -> None:
    step = tmp_path / "global_step_3"
    touch(*(step / file for file in files))
    located = locate(str(step), [])
    assert located.path == step / taken
    assert located.step == 3


def test_hub_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locate("Qwen/Qwen2.5-0.5B", [tmp_path]).hub_id == "Qwen/Qwen2.5-0.5B"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(CheckpointError, match="checkpoint gpt2: no such path"):
        locate("gpt2", [])
    (tmp_path / "hub" / "models--gpt2").mkdir(parents=True)
    assert locate("gpt2", []).hub_id == "gpt2"


def test_a_name_found_nowhere_lists_where_it_was_sought(tmp_path: Path) -> None:
    dump = tmp_path / "run" / "rollouts" / "x.jsonl"
    touch(dump, tmp_path / "run" / "checkpoints" / "step_3" / "config.json")
    for name in ("step_4", "checkpoints/step_4"):  # the second is a path, not org/name
        with pytest.raises(CheckpointError) as caught:
            locate(name, [dump])
        message = str(caught.value)
        for folder in ("run/rollouts", "run", "run/checkpoints"):
            assert str(tmp_path / folder) in message
        assert "\n" not in message
    (tmp_path / "run" / "step_4").mkdir()
    with pytest.raises(CheckpointError, match="run/step_4 holds no model"):
        locate("step_4", [dump])


# What a folder is, by its files.

REFUSED: dict[str, tuple[list[str], str]] = {
    "fsdp": (
        ["fsdp_config.json", "model_world_size_2_rank_0.pt", "huggingface/config.json"],
        "verl FSDP shards; merge them first: ragen-diag convert-ckpt {0} OUT, or with verl: python"
        " -m verl.model_merger merge --backend fsdp --local_dir {0} --target_dir OUT; then give",
    ),
    "fsdp-old": (
        ["model_world_size_2_rank_0.pt", "huggingface/config.json"],
        "or with verl: python scripts/legacy_model_merger.py merge --backend fsdp --local_dir {0}"
        " --target_dir OUT",
    ),
    "megatron": (
        ["common.pt", ".metadata", "__0_0.distcp"],
        "a Megatron checkpoint; convert it first: python tools/convert_torch_dist_to_hf.py"
        " --input-dir {0} --output-dir OUT --origin-hf-dir BASE (slime), or python"
        " examples/converters/convert_megatron_to_hf.py --config CONFIG --megatron-ckpt-path {0}"
        " --hf-ckpt-path OUT (NeMo-RL)",
    ),
    "megatron-run": (["iter_0000090/common.pt", "iter_0000100/common.pt"], "-dir {0}/iter_0000100"),
    "megatron-verl": (
        ["dist_ckpt/common.pt", "huggingface/config.json"],
        "python -m verl.model_merger merge --backend megatron --local_dir {0} --target_dir OUT",
    ),
    "megatron-verl-2": (
        ["ckpt_contents.json", "model/dist_ckpt/common.pt", "model/huggingface/config.json"],
        "python -m verl.model_merger merge --backend megatron --local_dir {0} --target_dir OUT",
    ),
    "dcp": (
        ["__0_0.distcp", ".metadata"],
        "(DCP); convert it first where you trust it: python -m"
        " torch.distributed.checkpoint.format_utils dcp_to_torch {0} OUT.pt, then ragen-diag"
        " convert-ckpt OUT.pt OUT --config-from BASE; then give OUT",
    ),
    "dcp-accelerate": (
        ["pytorch_model_fsdp_0/__0_0.distcp", "pytorch_model_fsdp_0/.metadata"],
        "accelerate merge-weights {0}/pytorch_model_fsdp_0 OUT; copy config.json",
    ),
    "deepspeed": (
        ["zero_pp_rank_0_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"],
        "a DeepSpeed checkpoint; convert it first where you trust it: python -m"
        " deepspeed.utils.zero_to_fp32 {0} OUT --safe_serialization; copy config.json",
    ),
    "deepspeed-script": (
        ["global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt", "latest", "zero_to_fp32.py"],
        "python {0}/zero_to_fp32.py {0} OUT --safe_serialization",
    ),
    "gguf": (["model-q4.gguf", "config.json"], "GGUF weights, which are quantised"),
    "pickle": (
        ["config.json", "pytorch_model-00001-of-00002.bin"],
        "which are never unpickled here; convert them first, which runs no code of theirs:"
        " ragen-diag convert-ckpt {0} OUT",
    ),
    "no-weights": (["config.json", "tokenizer.json"], "a configuration but no weights"),
    "nothing": (["notes.txt"], "holds no model"),
}


@pytest.mark.parametrize("layout", REFUSED)
def test_other_layouts_are_named_with_the_way_out(tmp_path: Path, layout: str) -> None:
    files, message = REFUSED[layout]
    touch(*(tmp_path / "c" / file for file in files))
    with pytest.raises(CheckpointError) as caught:
        inspect(tmp_path / "c")
    assert message.format(tmp_path / "c") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_commands_are_of_the_places_that_trainers_use(tmp_path: Path) -> None:
    nemo = tmp_path / "step 9" / "policy" / "weights"
    touch(nemo / ".metadata", nemo / "__0_0.distcp", tmp_path / "step 9" / "config.yaml")
    with pytest.raises(CheckpointError) as caught:
        inspect(nemo)
    assert (
        f"convert_dcp_to_hf.py --config '{tmp_path}/step 9/config.yaml' --dcp-ckpt-path '{nemo}'"
        " --hf-ckpt-path OUT (NeMo-RL)"
    ) in str(caught.value)
    tag = tmp_path / "_actor" / "global_step7"
    touch(tag / "mp_rank_00_model_states.pt", tag.parent / "zero_to_fp32.py")
    with pytest.raises(CheckpointError) as caught:
        inspect(tag)
    script = tag.parent / "zero_to_fp32.py"
    told = f"python {script} {tag.parent} OUT --safe_serialization --tag global_step7;"
    assert told in str(caught.value)


@pytest.mark.parametrize("shards", [True, False])
def test_verls_empty_huggingface_folder_names_the_merge(tmp_path: Path, shards: bool) -> None:
    """Also where the folder was copied without the shards above it."""
    actor = tmp_path / "global_step_9" / "actor"
    touch(actor / "huggingface" / "config.json")
    if shards:
        touch(actor / "model_world_size_1_rank_0.pt")
    for given in (tmp_path / "global_step_9", actor, actor / "huggingface"):
        located = locate(str(given), [])
        assert located.path is not None
        with pytest.raises(CheckpointError, match=f"fsdp --local_dir {actor} --target_dir OUT"):
            inspect(located.path)


@pytest.mark.parametrize(
    "name, message",
    [
        ("a.gguf", "GGUF"),
        ("a.bin", "pickled weights"),
        ("a.safetensors", "give the folder"),
        ("none", "no such folder"),
    ],
)
def test_a_file_is_no_checkpoint(tmp_path: Path, name: str, message: str) -> None:
    if name != "none":
        touch(tmp_path / name)
    with pytest.raises(CheckpointError, match=message):
        inspect(tmp_path / name)


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: touch(folder / name, text=text)


def config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "config.json", **changes)


def header(**tensor: Any) -> Callable[[Path], None]:
    """A file of one tensor of 4 bytes, whose header is all there but for what is given."""

    def harm(folder: Path) -> None:
        text = json.dumps({"a": {key: value for key, value in tensor.items() if value}}).encode()
        content = struct.pack("<Q", len(text)) + text + bytes(4)
        (folder / "model.safetensors").write_bytes(content)

    return harm


def index(weight_map: Any) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
        name = "model.safetensors.index.json"
        touch(folder / name, text=json.dumps({"weight_map": weight_map}))

    return harm


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
CODE = {"AutoModelForCausalLM": "modeling_x.X"}
DAMAGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut": (cut, "not a whole safetensors file"),
    "empty": (write("model.safetensors", ""), "not a whole safetensors file .0 bytes"),
    "noise": (write("model.safetensors", "x" * 500), "not a whole safetensors file"),
    "pointer": (write("model.safetensors", POINTER), "a Git LFS pointer, not the file; run git"),
    "tokenizer-pointer": (write("tokenizer.json", POINTER), r"tokenizer\.json: a Git LFS pointer"),
    "tokenizer-cut": (write("tokenizer.json", "{"), r"tokenizer\.json: not readable as JSON"),
    "no-config": (remove("config.json"), "no config.json beside the weights"),
    "no-tokenizer": (remove("tokenizer.json"), "no tokenizer files; .* --tokenizer"),
    "no-index": (
        lambda f: Path(f / "model.safetensors").rename(f / "model-00001-of-00002.safetensors"),
        "1 shards but no model.safetensors.index.json",
    ),
    "remote-code": (config(auto_map=CODE), "asks for code of its own .auto_map., which is never"),
    "remote-tokenizer": (
        lambda f: edit_json(f / "tokenizer_config.json", auto_map={"AutoTokenizer": "x.X"}),
        "tokenizer_config.json: asks for code of its own",
    ),
    "vision": (config(vision_config={"depth": 2}), "a vision or audio language model"),
    "critic": (
        config(architectures=["LlamaForTokenClassification"]),
        "LlamaForTokenClassification is no causal language model; give the policy's",
    ),
    "quantised-how": (
        config(quantization_config="x"),
        r"config\.json: quant\w+ is 'x', not an obj",
    ),
    "length-in-words": (config(max_position_embeddings="x"), r"embeddings is 'x', not a whole num"),
    "rope-in-words": (
        config(rope_scaling="x"),
        r"config\.json: rope_scaling is 'x', not an object",
    ),
    "one-architecture": (config(architectures="Llama"), "architectures is 'Llama', not a list"),
    "index-of-a-list": (index(["a"]), r"index\.json: weight_map is \['a'\], not an object"),
    "index-of-numbers": (index({"a": 1}), r"index\.json: weight_map holds what is no file name"),
    "no-dtype": (header(shape=[1], data_offsets=[0, 4]), "not a whole safetensors file"),
    "offsets-in-words": (
        header(dtype="F32", shape=[1], data_offsets=["0", "4"]),
        "not a whole safetensors file",
    ),
    "quantised": (config(quantization_config={"quant_method": "gptq"}), r"weights \(gptq\)"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_folder_that_would_not_load_is_refused_before_loading(saved: Path, damage: str) -> None:
    harm, message = DAMAGED[damage]
    harm(saved)
    with pytest.raises(CheckpointError, match=message) as caught:
        inspect(saved)
    assert str(saved) in str(caught.value) and "\n" not in str(caught.value)


def test_a_named_tokenizer_makes_up_for_a_missing_one(saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "base"
    other.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (saved / name).rename(other / name)
    checkpoint = opened(saved, tokenizer=str(other))
    assert checkpoint.tokenizer("up left")["input_ids"] == [1, 3]


def test_shards_must_be_there_and_belong_together(sharded: Path) -> None:
    found = inspect(sharded)
    assert len(found.weights) == 2 and found.stored_dtype == "bfloat16"
    first, second = (file.read_bytes() for file in found.weights[:2])
    found.weights[1].write_bytes(first)
    with pytest.raises(CheckpointError, match="not in the shards that the index names"):
        inspect(sharded)
    found.weights[1].write_bytes(second)
    found.weights[0].unlink()
    with pytest.raises(CheckpointError, match=r"1 of \d+ shards .* missing: model-00001-of-"):
        inspect(sharded)


def test_fingerprint_is_of_the_content(saved: Path, tmp_path: Path) -> None:
    before = inspect(saved).fingerprint
    touch(saved / "trainer_state.json", text="{}")
    saved = saved.rename(tmp_path / "elsewhere")
    assert inspect(saved).fingerprint == before
    file = saved / "model.safetensors"
    body = bytearray(file.read_bytes())
    body[-1] ^= 1
    file.write_bytes(bytes(body))
    assert inspect(saved).fingerprint != before


@pytest.mark.parametrize(
    "values, longest",
    [
        ({"max_position_embeddings": 64}, 64),
        ({"n_positions": 1024, "max_position_embeddings": None}, 1024),
        ({"max_position_embeddings": None}, None),
        ({"max_position_embeddings": 2048, "alibi": True}, None),
        # Qwen2.5's yarn: the table's own length and how far it is stretched.
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
    ],
)
def test_longest_sequence(saved: Path, values: dict[str, Any], longest: int | None) -> None:
    text = json.loads((saved / "config.json").read_text())
    text.pop("rope_parameters", None)
    (saved / "config.json").write_text(json.dumps(text | values))
    assert inspect(saved).max_length == longest


# Loading.


def test_half_precision_weights_are_upcast_exactly(saved: Path) -> None:
    checkpoint = opened(saved)
    assert (checkpoint.stored_dtype, checkpoint.dtype, checkpoint.device) == (
        "bfloat16",
        "float32",
        "cpu",
    )
    assert "bfloat16 weights upcast, which is exact" in checkpoint.reason
    stored = load_file(saved / "model.safetensors")["model.norm.weight"]
    assert torch.equal(checkpoint.model.model.norm.weight, stored.float())
    assert not checkpoint.model.training
    assert not any(weight.requires_grad for weight in checkpoint.model.parameters())
    assert (checkpoint.step, checkpoint.max_length, checkpoint.vocab_size) == (400, 64, 5)
    assert checkpoint.fingerprint == inspect(saved).fingerprint
    assert checkpoint.revision is None and checkpoint.notes == ()
    assert checkpoint.tokenizer("down right up")["input_ids"] == [2, 4, 1]
    assert opened(saved, dtype="bfloat16").model.dtype == torch.bfloat16


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_missing_weight_is_never_made_up(saved: Path) -> None:
    change_weights(saved, lambda weights: weights.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(CheckpointError, match=r"1 weights are missing: model\.layers\.1\.mlp\.up"):
        opened(saved)


def test_an_untied_head_is_needed_and_a_tied_one_is_not(saved: Path, sharded: Path) -> None:
    assert opened(sharded).model.lm_head.weight.shape == (5, 16)
    change_weights(saved, lambda weights: weights.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"1 weights are missing: lm_head\.weight"):
        opened(saved)


def test_a_weight_of_another_shape_is_an_error(saved: Path) -> None:
    change_weights(saved, lambda w: w.update({"model.norm.weight": torch.ones(8)}))
    with pytest.raises(
        CheckpointError,
        match=r"1 weights have another shape: model\.norm\.weight \(8 in the files, 16 by config",
    ):
        opened(saved)


def test_layers_that_the_configuration_does_not_know_are_not_left_out(saved: Path) -> None:
    edit_json(saved / "config.json", num_hidden_layers=1)
    with pytest.raises(
        CheckpointError, match=r"9 weights are in the files but not .*: model\.layers\.1\."
    ) as caught:
        opened(saved)
    assert "is config.json of this checkpoint?" in str(caught.value)


@pytest.mark.parametrize(
    "file, text, message",
    [
        ("config.json", {"hidden_size": "x"}, r"Error: .*'hidden_size'.*; check its config\.json"),
        ("config.json", {"num_attention_heads": 0}, "ZeroDivisionError: .*; check its config"),
        ("tokenizer.json", None, r"KeyError: 'added_tokens'\); copy tokenizer\.json"),
    ],
)
def test_what_the_loaders_choke_on_is_one_line(
    saved: Path, file: str, text: dict[str, Any] | None, message: str
) -> None:
    if text is None:
        touch(saved / file, text="{}")
    else:
        edit_json(saved / file, **text)
    with pytest.raises(CheckpointError, match=message) as caught:
        opened(saved)
    assert str(saved) in str(caught.value) and "\n" not in str(caught.value)


def test_a_weight_that_is_not_used_is_noted(saved: Path) -> None:
    change_weights(saved, lambda weights: weights.update({"value_head.weight": torch.ones(3)}))
    assert opened(saved).notes == ("1 weights not used: value_head.weight",)


@pytest.mark.parametrize(
    "name, harmless",
    [
        ("model.layers.0.self_attn.rotary_emb.inv_freq", True),
        ("transformer.h.0.attn.masked_bias", True),
        ("gpt_neox.layers.0.attention.bias", True),
        ("v_head.summary.weight", True),
        ("mtp.layers.0.mlp.up_proj.weight", True),
        ("model.layers.0.self_attn.q_proj.bias", False),
        ("score.weight", False),
        ("lm_head.weight", False),
    ],
)
def test_only_weights_that_change_no_score_may_be_left_out(name: str, harmless: bool) -> None:
    info = {"missing_keys": (), "mismatched_keys": (), "unexpected_keys": [name]}
    if harmless:
        assert judge_weights(Path("x"), info) == (f"1 weights not used: {name}",)
    else:
        with pytest.raises(CheckpointError, match=f"1 weights are in the files but not.* {name}"):
            judge_weights(Path("x"), info)


def test_loading_says_nothing_on_the_terminal(
    saved: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    transformers.utils.logging.enable_progress_bar()
    change_weights(saved, lambda weights: weights.update({"value_head.weight": torch.ones(3)}))
    edit_json(saved / "tokenizer_config.json", model_max_length=4)
    tokenizer = opened(saved).tokenizer
    assert tokenizer("up down " * 5)["input_ids"] == [1, 2] * 5
    assert capfd.readouterr() == ("", "")
    assert transformers.utils.logging.is_progress_bar_enabled()


def test_a_hub_id_is_a_snapshot_at_a_commit(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = saved.rename(saved.with_name("0123abc"))
    asked: dict[str, Any] = {}

    def snapshot(repo: str, **options: Any) -> str:
        asked.update(options, repo=repo)
        return str(commit)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    located = Located(None, "org/name", "Hub id", None)
    checkpoint = open_checkpoint(located, revision="main")
    assert (checkpoint.path, checkpoint.revision) == ("org/name", "0123abc")
    assert (asked["repo"], asked["revision"]) == ("org/name", "main")
    assert not any(pattern.endswith((".bin", ".pt", "*")) for pattern in asked["allow_patterns"])
    with pytest.raises(UsageError, match="--revision main is for Hub ids"):
        opened(commit, revision="main")


def test_offline_without_a_cached_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        CheckpointError, match="org/name at v1: not in the local cache, and HF_HUB_OFFLINE forbids"
    ) as caught:
        open_checkpoint(Located(None, "org/name", "Hub id", None), revision="v1")
    assert isinstance(caught.value.__cause__, hub_errors.LocalEntryNotFoundError)
    assert "\n" not in str(caught.value)


ANSWER = SimpleNamespace(headers={}, request=None, status_code=404)


@pytest.mark.parametrize(
    "error, message",
    [
        (hub_errors.LocalEntryNotFoundError("Got: x\ny"), "cache, and the Hub cannot be reached"),
        (hub_errors.RepositoryNotFoundError("404\n", response=ANSWER), "no such repository on"),
        (hub_errors.RevisionNotFoundError("404\n", response=ANSWER), "no such revision of this"),
        (hub_errors.GatedRepoError("403\n", response=ANSWER), "gated; .* `hf auth login`"),
        (hub_errors.HFValidationError("bad\nname"), r"no name of a Hub repository \(.*: bad name"),
        (ConnectionResetError("a\nb"), r"can't be had from the Hub \(ConnectionResetError: a b\)"),
    ],
)
def test_why_the_hub_gave_nothing(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshot(repo: str, **options: Any) -> str:
        raise error

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(CheckpointError, match=f"org/name: .*{message}") as caught:
        open_checkpoint(Located(None, "org/name", "Hub id", None))
    assert "\n" not in str(caught.value)


def test_devices_and_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == ("cpu", "no accelerator found")
    for device in ("cuda", "cuda:0", "mps", "tpu", "cpu:1"):
        with pytest.raises(UsageError, match=f"--device {device}: not on this machine, .* cpu"):
            choose_device(device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto")[0] == "cuda"
    assert choose_device("cuda:1")[0] == "cuda:1"
    with pytest.raises(UsageError, match="--device cuda:2"):
        choose_device("cuda:2")
    assert choose_dtype("auto", "cuda", "bfloat16") == ("bfloat16", "dtype as stored")
    assert choose_dtype("auto", "mps", "float16")[0] == "float32"
    assert choose_dtype("float16", "cpu", "bfloat16") == (
        "float16",
        "dtype as asked, bfloat16 weights rounded",
    )
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(UsageError, match="--dtype bfloat16"):
        choose_dtype("bfloat16", "cuda", "float32")
    with pytest.raises(UsageError, match="--dtype int8"):
        choose_dtype("int8", "cpu", "float32")


def test_header_of_a_hand_made_file(saved: Path) -> None:
    """8 bytes of length, a JSON header, then the tensors: the most bytes name the dtype."""
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            "b": {"dtype": "F16", "shape": [4], "data_offsets": [4, 12]},
        }
    ).encode()
    (saved / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
    assert inspect(saved).stored_dtype == "float16"
