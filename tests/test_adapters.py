"""PEFT adapters: their base found, every weight taken over, and merged to what they mean."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_checkpoints import edit_json, opened, save_model, touch

from ragen_diag.checkpoints import adapter
from ragen_diag.checkpoints.layouts import inspect
from ragen_diag.checkpoints.locate import Located
from ragen_diag.errors import CheckpointError, UsageError
from ragen_diag.pipeline import analyze
from ragen_diag.report.provenance import provenance
from ragen_diag.settings import Settings
from ragen_diag.survey.preflight import check

IDS = torch.tensor([[1, 4, 2, 2, 3, 0, 1]])


def make_adapter(
    folder: Path, base: Path, *, added: int = 0, untrained: bool = False, **changes: Any
) -> Path:
    """A LoRA adapter as a trainer's save_pretrained writes it, with weights that matter."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    values = {"r": 2, "lora_alpha": 8, "task_type": "CAUSAL_LM", "target_modules": ["q_proj"]}
    torch.manual_seed(1)
    with warnings.catch_warnings(action="ignore"):
        if added:
            model.resize_token_embeddings(model.config.vocab_size + added)
        config = peft.LoraConfig(**values | changes, init_lora_weights=untrained)
        adapted = peft.get_peft_model(model, config)
        with torch.no_grad():
            for weight in adapted.parameters():
                if weight.requires_grad and not untrained:
                    weight.add_(0.5 * torch.randn(weight.shape))
        adapted.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers.utils.logging.disable_progress_bar()
    return save_model(tmp_path_factory.mktemp("models") / "base", dtype=torch.float32)


@pytest.fixture(scope="session")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tied"
    return save_model(folder, dtype=torch.float32, tie_word_embeddings=True)


@pytest.fixture
def lora(base: Path, tmp_path: Path) -> Path:
    return make_adapter(tmp_path / "run" / "checkpoint-400", base)


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=IDS).logits
    return found


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / "adapter_model.safetensors")
    change(weights)
    save_file(weights, folder / "adapter_model.safetensors")


def test_an_adapter_is_its_product_added_to_the_base(base: Path, lora: Path) -> None:
    checkpoint = opened(lora)
    by_hand = transformers.AutoModelForCausalLM.from_pretrained(base)
    weights = load_file(lora / "adapter_model.safetensors")
    for n, layer in enumerate(by_hand.model.layers):
        name = f"base_model.model.model.layers.{n}.self_attn.q_proj.lora_{{}}.weight"
        change = weights[name.format("B")] @ weights[name.format("A")] * (8 / 2)
        assert change.abs().max() > 0.1
        layer.self_attn.q_proj.weight.data += change
    torch.testing.assert_close(logits(checkpoint.model), logits(by_hand), rtol=0, atol=1e-5)
    assert type(checkpoint.model) is transformers.LlamaForCausalLM
    assert not any(weight.requires_grad for weight in checkpoint.model.parameters())
    assert not checkpoint.model.training
    assert (checkpoint.path, checkpoint.step) == (str(lora), 400)
    assert (checkpoint.stored_dtype, checkpoint.vocab_size, checkpoint.max_length) == (
        *("float32", 5),
        64,
    )
    assert checkpoint.tokenizer("up left")["input_ids"] == [1, 3]
    (note,) = checkpoint.notes
    assert note.startswith(f"LORA adapter of rank 2 on {base}: it moves the log-probs of 32 tokens")


def test_an_untrained_adapter_is_noted(base: Path, tmp_path: Path) -> None:
    checkpoint = opened(make_adapter(tmp_path / "a", base, untrained=True))
    (note,) = checkpoint.notes
    assert note.endswith("it changes no log-prob of 32 tokens; an untrained one?")


@pytest.mark.parametrize(
    "changes",
    [
        {"target_modules": ["q_proj", "lm_head", "embed_tokens"]},
        {"modules_to_save": ["lm_head", "embed_tokens"]},
        {"trainable_token_indices": [1, 3]},
        {"use_dora": True, "target_modules": "all-linear"},
        {"added": 3},
    ],
    ids=lambda changes: next(iter(changes)) + str(len(changes)),
)
@pytest.mark.parametrize("which", ["base", "tied"])
def test_merged_is_the_adapted_model(
    which: str, changes: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Also where embedding and head are one tensor, and where tokens were added."""
    whole: Path = request.getfixturevalue(which)
    folder = make_adapter(tmp_path / "a", whole, **changes)
    checkpoint = opened(folder)
    plain = transformers.AutoModelForCausalLM.from_pretrained(whole)
    size = 5 + changes.get("added", 0)
    with warnings.catch_warnings(action="ignore"):
        if size > 5:
            plain.resize_token_embeddings(size)
        adapted = peft.PeftModel.from_pretrained(plain, folder)
    assert checkpoint.vocab_size == size == inspect(folder).vocabulary
    torch.testing.assert_close(logits(checkpoint.model), logits(adapted), rtol=0, atol=1e-5)
    if size > 5:
        name = "base_model.model.model.embed_tokens.weight"
        saved = load_file(folder / "adapter_model.safetensors")[name]
        assert torch.equal(checkpoint.model.get_input_embeddings().weight, saved)


def test_merging_in_a_coarse_type_says_how_much_it_rounds(lora: Path) -> None:
    checkpoint = opened(lora, dtype="bfloat16")
    assert checkpoint.model.dtype == torch.bfloat16
    assert ", and merging in bfloat16 rounds them by up to 0.0" in checkpoint.notes[0]


# Its base.


def test_where_the_base_is_looked_for(base: Path, lora: Path, tmp_path: Path) -> None:
    config = lora / "adapter_config.json"
    shutil.copytree(base, tmp_path / "run" / "models" / "small")
    for name, place in (
        ("models/small", tmp_path / "run" / "models" / "small"),
        ("../models/small", lora / "../models/small"),
        (str(base), base),
    ):
        edit_json(config, base_model_name_or_path=name)
        files = inspect(lora)
        assert files.base_files.path == place
    edit_json(config, base_model_name_or_path="/cluster/models/small")
    with pytest.raises(
        CheckpointError,
        match=r"adapter on /cluster/models/small, which is not here; .*--base-model",
    ):
        inspect(lora)
    assert opened(lora, base_model=str(base)).notes[0].startswith("LORA")
    edit_json(config, base_model_name_or_path=None)
    with pytest.raises(CheckpointError, match="does not name its base; name it with --base-model"):
        inspect(lora)


def test_a_base_on_the_hub_is_fetched_at_its_revision(
    base: Path, lora: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_json(lora / "adapter_config.json", base_model_name_or_path="org/small", revision="v2")
    assert inspect(lora).base_files is None
    asked: list[Any] = []

    def snapshot(repo: str, *, revision: str | None, **options: Any) -> str:
        asked.append((repo, revision))
        return str(base)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    checkpoint = opened(lora)
    assert asked == [("org/small", "v2")]
    assert "adapter of rank 2 on org/small:" in checkpoint.notes[0]


def test_a_base_that_cannot_be_had_offline(
    lora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    edit_json(lora / "adapter_config.json", base_model_name_or_path="org/small")
    with pytest.raises(CheckpointError, match="base of this adapter, org/small: not in the local "):
        opened(lora)
    with pytest.raises(CheckpointError, match="--base-model nowhere: checkpoint nowhere: no such"):
        opened(lora, base_model="nowhere")


def test_a_base_must_be_a_whole_model(base: Path, lora: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"its base .* is an adapter too"):
        inspect(lora, base_model=str(make_adapter(tmp_path / "b", base)))
    bad = shutil.copytree(base, tmp_path / "bad")
    edit_json(bad / "config.json", quantization_config={"quant_method": "bitsandbytes"})
    with pytest.raises(
        CheckpointError, match=r"quantised weights \(bitsandbytes\).*; --base-model names another"
    ):
        inspect(lora, base_model=str(bad))
    with pytest.raises(
        UsageError, match=r"--base-model x: .* is no PEFT adapter; leave the option"
    ):
        inspect(base, base_model="x")


def test_the_wrong_base_is_found_out(lora: Path, tmp_path: Path) -> None:
    other = save_model(tmp_path / "other", dtype=torch.float32, num_hidden_layers=1)
    with pytest.raises(
        CheckpointError, match=r"2 weights .* have no place in .*/other: .*layers\.1"
    ):
        opened(lora, base_model=str(other))
    wide = save_model(tmp_path / "wide", dtype=torch.float32, hidden_size=32)
    with pytest.raises(CheckpointError, match=r"can't be put on .*/wide .*; is it the adapter's"):
        opened(lora, base_model=str(wide))


def test_the_tokenizer_is_the_adapters_before_the_bases(base: Path, lora: Path) -> None:
    assert inspect(lora).tokenizer == str(base)
    shutil.copy(base / "tokenizer.json", lora)
    assert inspect(lora).tokenizer == str(lora)


# Its own files.


def lose(part: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        change_weights(folder, lambda w: w.pop(f"base_model.model.model.layers.1.{part}"))

    return harm


def config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "adapter_config.json", **changes)


def pickled(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


def cut(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


DAMAGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (lose("self_attn.q_proj.lora_B.weight"), r"1 weights of .* are missing: .*lora_B"),
    "unexpected": (
        lambda f: change_weights(f, lambda w: w.update({"base_model.model.zz": torch.ones(2)})),
        r"1 weights of the adapter have no place in .*: base_model\.model\.zz",
    ),
    "other-modules": (config(target_modules=["v_proj"]), "4 weights of the adapter are missing"),
    "other-rank": (config(r=4), "can't be put on"),
    "pickled": (pickled, "only adapter_model.bin, a pickle, which is never opened"),
    "cut": (cut, "not a whole safetensors file"),
    "no-weights": (lambda f: (f / "adapter_model.safetensors").unlink(), "copy the whole folder"),
    "not-json": (lambda f: touch(f / "adapter_config.json"), "not readable as JSON"),
    "prompt": (config(peft_type="PREFIX_TUNING"), "kind PREFIX_TUNING, which cannot be merged"),
    "unknown": (config(peft_type=None), "an adapter of kind None"),
    "reward-model": (config(task_type="SEQ_CLS"), "an adapter for SEQ_CLS, which is no causal"),
    "imports": (
        config(megatron_config={"a": 1}, megatron_core="this"),
        "megatron_config makes peft read what the file names, which is never done",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_adapter_is_refused(lora: Path, damage: str) -> None:
    harm, message = DAMAGED[damage]
    harm(lora)
    with pytest.raises(CheckpointError, match=message) as caught:
        opened(lora)
    assert str(lora) in str(caught.value) and "\n" not in str(caught.value)


def test_added_tokens_need_their_rows_of_the_head(base: Path, tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a", base, added=2)
    change_weights(folder, lambda w: w.pop("base_model.model.lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"of 7 tokens, but .* has 5, and no head of that"):
        opened(folder)


def test_without_peft_one_line_says_what_to_install(
    lora: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs peft; run: pip install 'ragen-diag\[peft\]'"):
        inspect(lora)


def test_the_fingerprint_is_of_base_and_adapter(base: Path, lora: Path, tmp_path: Path) -> None:
    before = inspect(lora).fingerprint
    assert opened(lora).fingerprint == before != inspect(base).fingerprint
    other = save_model(tmp_path / "other", dtype=torch.float32, rms_norm_eps=1e-3)
    assert inspect(lora, base_model=str(other)).fingerprint != before
    change_weights(lora, lambda w: next(iter(w.values())).add_(1))
    assert inspect(lora).fingerprint != before


def test_before_loading_the_same_is_said(lora: Path, base: Path) -> None:
    found = check(str(lora), None, [])
    facts = found.checkpoint
    assert facts is not None and found.problems == [] and found.counter is not None
    assert (facts.vocabulary, facts.context, facts.stored_dtype) == (5, 64, "float32")
    sizes = [f.stat().st_size for f in (base / "model.safetensors", *lora.glob("*.safetensors"))]
    assert facts.weight_bytes == sum(sizes)
    edit_json(lora / "adapter_config.json", base_model_name_or_path="/dead/path")
    (problem,) = check(str(lora), None, []).problems
    assert problem.severity == "error" and "with --base-model" in problem.message
    assert check(str(lora), None, [], base_model=str(base)).problems == []
    edit_json(lora / "adapter_config.json", base_model_name_or_path="org/small")
    (problem,) = check(str(lora), None, []).problems
    assert (
        problem.severity == "note" and "base, Hub id org/small, is not looked at" in problem.message
    )


def test_an_adapter_on_the_hub(lora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda repo, **options: str(lora))
    from ragen_diag.checkpoints.load import open_checkpoint

    checkpoint = open_checkpoint(Located(None, "org/lora", "Hub id", None))
    assert (checkpoint.path, checkpoint.revision) == ("org/lora", "checkpoint-400")
    assert json.loads((lora / "adapter_config.json").read_text())["r"] == 2


def test_what_the_adapter_changes_is_in_the_report(tmp_path: Path) -> None:
    run = Path(__file__).parents[1] / "sample_runs" / "healthy"
    folder = make_adapter(tmp_path / "a", run / "checkpoints" / "step_00120")
    dump = run / "rollouts" / "step_00120.parquet"
    given = Settings(limit=3, resamples=100, base_model=str(run / "checkpoints" / "step_00120"))
    edit_json(folder / "adapter_config.json", base_model_name_or_path="/dead")
    result = analyze(dump, str(folder), settings=given).result
    told = dict(provenance(result))["note on the checkpoint"]
    assert told.startswith("LORA adapter of rank 2 on") and "it moves the log-probs" in told
