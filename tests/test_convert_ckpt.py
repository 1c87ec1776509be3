"""Shards and pickles as a folder that can be scored with: every weight right, and no code run."""

import json
import os
import pickle
import re
import shutil
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import transformers
from safetensors.torch import load_file
from test_checkpoints import edit_json, opened, save_model, touch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from typer.testing import CliRunner

from ragen_diag.checkpoints.conversion import export, torchfiles
from ragen_diag.checkpoints.conversion.convert import Converted, convert_checkpoint
from ragen_diag.checkpoints.conversion.torchfiles import read_weights
from ragen_diag.cli import app
from ragen_diag.errors import CheckpointError, UsageError

Weights = Mapping[str, torch.Tensor]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 columns in the last dimension of some weights, which 2 and 4 ranks cannot share evenly."""
    transformers.utils.logging.disable_progress_bar()
    folder = save_model(tmp_path_factory.mktemp("models") / "tiny", dtype=torch.float32)
    return folder


@pytest.fixture(scope="session")
def whole(model: Path) -> Weights:
    return load_file(model / "model.safetensors")


def write_shards(
    actor: Path,
    weights: Weights,
    mesh: Sequence[int],
    placements: Sequence[Any],
    change: Callable[[int, dict[str, Any]], Any] = lambda rank, state: None,
) -> Path:
    """What each rank of a run would save: real DTensors, made without other processes."""
    size = int(torch.tensor(mesh).prod())
    names = ("ddp", "fsdp") if len(mesh) > 1 else ("fsdp",)
    actor.mkdir(parents=True)
    for rank in range(size):
        with warnings.catch_warnings(action="ignore"):
            torch.distributed.init_process_group(
                "fake", rank=rank, world_size=size, store=FakeStore()
            )
            try:
                ranks = init_device_mesh("cpu", tuple(mesh), mesh_dim_names=names)
                state: dict[str, Any] = {
                    name: distribute_tensor(weight, ranks, placements, src_data_rank=None)
                    for name, weight in weights.items()
                }
                change(rank, state)
                torch.save(state, actor / f"model_world_size_{size}_rank_{rank}.pt")
            finally:
                torch.distributed.destroy_process_group()
    return actor


@pytest.fixture
def actor(model: Path, whole: Weights, tmp_path: Path) -> Path:
    folder = write_shards(tmp_path / "global_step_9" / "actor", whole, [3], [Shard(0)])
    put_beside(folder, model)
    return folder


def put_beside(actor: Path, model: Path) -> None:
    shutil.copytree(model, actor / "huggingface")
    (actor / "huggingface" / "model.safetensors").unlink()


def require_same(out: Path, weights: Weights) -> None:
    held = {n: w for file in out.glob("*.safetensors") for n, w in load_file(file).items()}
    assert held.keys() == weights.keys()
    for name, weight in weights.items():
        assert held[name].dtype == weight.dtype and torch.equal(held[name], weight), name


# Shards.


@pytest.mark.parametrize(
    "mesh, placements",
    [
        ([1], [Shard(0)]),
        ([4], [Shard(0)]),
        ([3], [Replicate()]),
        ([2, 2], [Replicate(), Shard(0)]),
        ([2, 3], [Shard(0), Shard(0)]),
    ],
    ids=str,
)
def test_shards_are_put_together(
    mesh: list[int], placements: list[Any], model: Path, whole: Weights, tmp_path: Path
) -> None:
    folder = write_shards(tmp_path / "actor", whole, mesh, placements)
    put_beside(folder, model)
    done = convert_checkpoint(str(folder), tmp_path / "out")
    require_same(tmp_path / "out", whole)
    assert (done.weights, done.dtype, done.left_out) == (len(whole), "float32", ())
    assert done.size == sum(w.numel() * 4 for w in whole.values())


def test_by_columns_too(tmp_path: Path, model: Path, whole: Weights) -> None:
    wide = {name: weight for name, weight in whole.items() if weight.ndim == 2}

    def rest(rank: int, state: dict[str, Any]) -> None:
        # What is no DTensor: the same everywhere, or a piece of the first dimension.
        for name in whole.keys() - wide.keys():
            state[name] = whole[name].chunk(2)[rank] if "layers.0" in name else whole[name]

    # Norms of one value would look the same in pieces.
    whole = {n: w * torch.linspace(1, 2, len(w)) if w.ndim == 1 else w for n, w in whole.items()}
    folder = write_shards(tmp_path / "actor", wide, [2], [Shard(1)], rest)
    put_beside(folder, model)
    convert_checkpoint(str(folder), tmp_path / "out")
    require_same(tmp_path / "out", whole)


def test_the_folder_that_comes_out_is_the_checkpoint(
    actor: Path, model: Path, whole: Weights, tmp_path: Path
) -> None:
    """By the step's folder, half precision, marks of wrappers, and a folder of the step's name."""
    half = {f"_fsdp_wrapped_module.{n}": w.bfloat16() for n, w in whole.items()}
    shutil.rmtree(actor)
    put_beside(write_shards(actor, half, [2], [Shard(0)]), model)
    touch(actor / "huggingface" / "modeling_tiny.py")
    out = tmp_path / "step_9"
    ran = CliRunner().invoke(app, ["convert-ckpt", str(actor.parent), str(out)])
    assert ran.exit_code == 0, ran.output
    assert f"{out}: {len(whole)} weights, 0.00 GB as bfloat16, from FSDP shards in" in ran.stderr
    checkpoint = opened(out)
    assert (checkpoint.step, checkpoint.stored_dtype, checkpoint.notes) == (9, "bfloat16", ())
    assert checkpoint.tokenizer("up")["input_ids"] == [1]
    require_same(out, {name: weight.bfloat16() for name, weight in whole.items()})
    assert not list(out.glob("*.py")) and not list(tmp_path.glob(".ragen-diag*"))
    assert out.stat().st_mode & 0o777 == 0o777 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def as_of_old(file: Path) -> None:
    """The same file as torch 2.4 on a GPU wrote it: classes of another name, storages of cuda."""
    placements = b"torch.distributed._tensor.placement_types\n"
    names = {
        b"torch.distributed.tensor\nDTensor": b"torch.distributed._tensor.api\nDTensor",
        b"torch.distributed.tensor._dtensor_spec\n": placements,
        b"torch.distributed.tensor.placement_types\n": placements,
        b"X\x03\x00\x00\x00cpu": b"X\x06\x00\x00\x00cuda:0",
    }
    with zipfile.ZipFile(file) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for entry, body in entries.items():
            for new, old in names.items() if entry.endswith("data.pkl") else ():
                assert new in body
                body = body.replace(new, old)
            archive.writestr(entry, body)


def test_shards_of_an_older_torch_from_a_gpu(
    tmp_path: Path, model: Path, whole: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def age(rank: int, state: dict[str, Any]) -> None:
        mesh = DeviceMesh.__new__(DeviceMesh)
        # Its attributes as they were before torch 2.9.
        mesh.__dict__ |= {
            "device_type": "cuda",
            "mesh": torch.arange(2, dtype=torch.int32),
            "mesh_dim_names": ("fsdp",),
            "_flatten_mesh_list": (0, 1),
            "_thread_id": 1,
            "_coordinate_on_dim": [rank],
            "_dim_group_infos": [("ptd:0", [0, 1], "0")],
        }
        for weight in state.values():
            spec = vars(weight._spec)
            for name in spec.keys() - {"placements", "tensor_meta"}:
                del spec[name]
            spec["mesh"] = mesh

    monkeypatch.setattr(DeviceMesh, "__getstate__", lambda mesh: mesh.__dict__, raising=False)
    folder = write_shards(tmp_path / "actor", whole, [2], [Shard(0)], age)
    monkeypatch.undo()
    for file in folder.glob("*.pt"):
        as_of_old(file)
    put_beside(folder, model)
    convert_checkpoint(str(folder), tmp_path / "out")
    require_same(tmp_path / "out", whole)


def lost_rank(actor: Path) -> None:
    (actor / "model_world_size_3_rank_1.pt").unlink()


def of_two_runs(actor: Path) -> None:
    touch(actor / "model_world_size_2_rank_0.pt")


def mixed_up(actor: Path) -> None:
    shutil.copy(actor / "model_world_size_3_rank_0.pt", actor / "model_world_size_3_rank_1.pt")


def no_config(actor: Path) -> None:
    shutil.rmtree(actor / "huggingface")


@pytest.mark.parametrize(
    "harm, message",
    [
        (lost_rank, "shards of 1 ranks are missing, first rank 1"),
        (of_two_runs, "shards of runs with 2, 3 ranks"),
        (mixed_up, "model_world_size_3_rank_1.pt holds the piece of another rank"),
        (no_config, "no config.json; name a folder that has it, .* --config-from"),
        (
            lambda actor: edit_json(actor / "huggingface" / "config.json", num_hidden_layers=3),
            r"9 weights are missing: model\.layers\.2",
        ),
        (
            lambda actor: edit_json(actor / "huggingface" / "config.json", num_hidden_layers=1),
            r"9 weights are in the files but not in the model",
        ),
        (
            lambda actor: edit_json(actor / "huggingface" / "config.json", intermediate_size=20),
            r"6 weights have another shape: .*24x16 in the files, 20x16 by config",
        ),
    ],
)
def test_what_does_not_fit_leaves_nothing(
    actor: Path, harm: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    harm(actor)
    with pytest.raises(CheckpointError, match=message) as caught:
        convert_checkpoint(str(actor), tmp_path / "out")
    assert str(actor) in str(caught.value) and "\n" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["global_step_9"]


def test_what_is_not_put_together(tmp_path: Path, model: Path, whole: Weights) -> None:
    folder = write_shards(tmp_path / "partial", whole, [2], [Partial()])
    put_beside(folder, model)
    with pytest.raises(
        CheckpointError,
        match=r"is placed as P.*, which is not put together here; use the trainer's own",
    ):
        convert_checkpoint(str(folder), tmp_path / "out")
    name = "model.layers.0.self_attn.q_proj.{}.weight"
    adapter = {name.format(part): torch.ones(2, 2) for part in ("base_layer", "lora_A.default")}
    folder = write_shards(tmp_path / "lora", adapter, [2], [Shard(0)])
    with pytest.raises(CheckpointError, match=r"a LoRA adapter and its base; give .*/lora_adapter"):
        convert_checkpoint(str(folder), tmp_path / "out")


# Pickles.


@pytest.fixture
def pickled(model: Path, whole: Weights, tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint-3"
    shutil.copytree(model, folder)
    (folder / "model.safetensors").unlink()
    torch.save(dict(whole), folder / "pytorch_model.bin")
    return folder


def converted(folder: Path, **options: Any) -> Converted:
    return convert_checkpoint(str(folder), folder.parent / "out", **options)


def test_a_pickled_folder(pickled: Path, whole: Weights) -> None:
    assert converted(pickled).kind == "pickled weights"
    require_same(pickled.parent / "out", whole)


def test_several_files_in_and_several_out(
    pickled: Path, whole: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pickled / "pytorch_model.bin").unlink()
    names, where = sorted(whole), {}
    for part, chunk in enumerate((names[:9], names[9:]), 1):
        file = f"pytorch_model-{part:05}-of-00002.bin"
        torch.save({name: whole[name] for name in chunk}, pickled / file)
        where |= dict.fromkeys(chunk, file)
    touch(pickled / "pytorch_model.bin.index.json", text=json.dumps({"weight_map": where}))
    monkeypatch.setattr(export, "SHARD_BYTES", 5000)
    converted(pickled)
    out = pickled.parent / "out"
    require_same(out, whole)
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == len(list(out.glob("*.safetensors"))) > 2
    assert index["metadata"]["total_size"] == sum(w.numel() * 4 for w in whole.values())
    assert opened(out).notes == ()
    (pickled / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(CheckpointError, match=r"pytorch_model-00002-of-00002\.bin is missing"):
        convert_checkpoint(str(pickled), pickled.parent / "again")


def test_a_tied_head_may_be_there_twice_or_once(tmp_path: Path) -> None:
    tied = save_model(tmp_path / "tied", dtype=torch.float32, tie_word_embeddings=True)
    state = transformers.AutoModelForCausalLM.from_pretrained(tied).state_dict()
    assert "lm_head.weight" in state
    for left_out in (set(), {"lm_head.weight"}):
        given = {name: weight for name, weight in state.items() if name not in left_out}
        torch.save(given, tmp_path / "both.pt")
        convert_checkpoint(
            str(tmp_path / "both.pt"), tmp_path / "out", config_from=tied, force=True
        )
        require_same(tmp_path / "out", given)
        model = opened(tmp_path / "out").model
        assert torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)


def test_one_file_as_converters_write_it(model: Path, whole: Weights, tmp_path: Path) -> None:
    """The model inside of dicts, an optimiser beside it, the old file format, shared memory."""
    state = dict(whole)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    value = {"model": {"model": state, "step": 3}, "optimizer": {"lr": 0.1}}
    torch.save(value, tmp_path / "OUT.pt", _use_new_zipfile_serialization=False)
    done = converted(tmp_path / "OUT.pt", config_from=model)
    require_same(tmp_path / "out", state)
    assert done.left_out == ("optimizer", "step")


class Harmful:
    def __reduce__(self) -> Any:
        return os.mkdir, ("harmed",)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flip(file: Path) -> None:
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    file.write_bytes(body)


@pytest.mark.parametrize(
    "write, message",
    [
        (lambda file: torch.save({"a": Harmful()}, file), r"holds objects \(posix\.mkdir\) that"),
        (
            lambda file: file.write_bytes(pickle.dumps(Harmful(), protocol=2)),
            "only unpickling, which can run code|a damaged torch file",
        ),
        (cut, "a damaged torch file"),
        (flip, "another checksum than was written"),
        (lambda file: file.write_bytes(b""), "a damaged torch file"),
        (lambda file: torch.save([1, 2], file), "holds no weights by name"),
        (lambda file: torch.save({"optimizer": {}}, file), "holds no weights by name"),
    ],
)
def test_no_code_is_run_and_no_damage_copied(
    pickled: Path, write: Callable[[Path], Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pickled.parent)
    write(pickled / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=message) as caught:
        converted(pickled)
    assert "\n" not in str(caught.value)
    assert [entry.name for entry in pickled.parent.iterdir()] == [pickled.name]


def test_a_torch_that_opens_no_pickle_safely(
    pickled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchfiles.torch, "__version__", "2.5.1+cu124")
    with pytest.raises(UsageError, match=r"torch 2\.5\.1\+cu124 opens no pickle safely; install"):
        read_weights(pickled / "pytorch_model.bin")


# Where to.


def test_what_is_there_is_replaced_only_on_demand(pickled: Path, whole: Weights) -> None:
    out = pickled.parent / "out"
    converted(pickled)
    before = sorted(out.iterdir())
    (out / "model.safetensors").write_bytes(b"old")
    with pytest.raises(UsageError, match="is there already; give another name, or --force"):
        converted(pickled)
    converted(pickled, force=True)
    require_same(out, whole)
    assert sorted(out.iterdir()) == before


def test_force_spares_what_is_no_checkpoint(pickled: Path) -> None:
    out = pickled.parent / "out"
    touch(out / "thesis.txt")
    with pytest.raises(UsageError, match="is no plain folder of a checkpoint"):
        converted(pickled, force=True)
    touch(out / "config.json", out / "chapters" / "1.txt")
    with pytest.raises(UsageError, match="is no plain folder of a checkpoint"):
        converted(pickled, force=True)
    for place in (pickled, pickled.parent):
        with pytest.raises(UsageError, match="is part of the checkpoint itself"):
            convert_checkpoint(str(pickled), place, force=True)
    with pytest.raises(UsageError, match="there is no such folder to put it in"):
        convert_checkpoint(str(pickled), out / "a" / "b")


def test_other_layouts_are_told_as_everywhere(model: Path, tmp_path: Path) -> None:
    touch(tmp_path / "c" / ".metadata", tmp_path / "c" / "__0_0.distcp")
    with pytest.raises(CheckpointError, match="format_utils dcp_to_torch"):
        convert_checkpoint(str(tmp_path / "c"), tmp_path / "out")
    with pytest.raises(UsageError, match="needs no conversion; give it as it stands with --ckpt"):
        convert_checkpoint(str(model), tmp_path / "out")
    with pytest.raises(UsageError, match="org/name: is on the Hub; download it first"):
        convert_checkpoint("org/name", tmp_path / "out")


def test_sizes_that_lie_are_no_bomb(pickled: Path) -> None:
    """A central directory that promises more than the file holds."""
    file = pickled / "pytorch_model.bin"
    body = file.read_bytes()
    entry = body.index(b"PK\x01\x02")
    file.write_bytes(body[: entry + 24] + struct.pack("<I", 2**31) + body[entry + 28 :])
    with pytest.raises(CheckpointError, match="holds more than it is long"):
        read_weights(file)


def test_names_of_old_classes_are_those_of_the_loader() -> None:
    with torchfiles._distributed_names():
        allowed = {n for entry in torch.serialization.get_safe_globals() for n in [str(entry)]}
    assert any(re.search("_tensor.placement_types.DTensorSpec", name) for name in allowed)
