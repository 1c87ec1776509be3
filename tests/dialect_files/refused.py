"""Files that are no dump, or that only code of their own could read."""

import gzip
import os
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dialect_files.case import put


class Payload:
    """What runs when it is unpickled: it makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.marker),)


def plain_pickle(folder: Path) -> Path:
    """A dump that was pickled, with code in it."""
    value = {"prompt": ["p"], "response": [Payload(folder / "marker")]}
    return put(folder / "val_rollouts.pkl", pickle.dumps(value))


def renamed_pickle(folder: Path) -> Path:
    """verl's own batch object under a name that looks harmless."""
    state = (b"PK\x03\x04", {"uid": ["a"]}, {"global_steps": 1}, Payload(folder / "marker"))
    return put(folder / "batch.jsonl", pickle.dumps(state, protocol=4))


def packed_pickle(folder: Path) -> Path:
    """A pickle within gzip."""
    data = gzip.compress(pickle.dumps(Payload(folder / "marker")))
    return put(folder / "step_3.pkl.gz", data)


def torch_object(folder: Path) -> Path:
    """slime's layout with an object in it that only its own code could make."""
    return _saved(folder / "rollout_3.pt", folder / "marker", zipped=True)


def old_torch_object(folder: Path) -> Path:
    """The same in torch's format of old, which is a bare pickle."""
    return _saved(folder / "rollout_4.pt", folder / "marker", zipped=False)


def renamed_torch_object(folder: Path) -> Path:
    """The same under the name of lines."""
    return _saved(folder / "rollout.jsonl", folder / "marker", zipped=True)


def _saved(path: Path, marker: Path, *, zipped: bool) -> Path:
    import torch

    sample = {"prompt": "p", "response": "r", "reward": 1.0, "metadata": Payload(marker)}
    value = {"rollout_id": 3, "samples": [sample]}
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


def tensors(folder: Path) -> Path:
    """OpenRLHF's experience: readable without any code, but without a text or a group."""
    import torch

    value = {
        "sequences": torch.zeros(4, 8, dtype=torch.int64),
        "action_mask": torch.ones(4, 5, dtype=torch.bool),
        "action_log_probs": torch.zeros(4, 5),
        "value": torch.zeros(4, 5, dtype=torch.bfloat16),
        "reward": torch.zeros(4, 5),
    }
    path = folder / "experience.pt"
    torch.save(value, path)
    return path


def lfs_pointer(folder: Path) -> Path:
    """What a clone without Git LFS leaves."""
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d" * 32 + "\nsize 123456\n"
    return put(folder / "400.jsonl", text.encode())


def lfs_parquet(folder: Path) -> Path:
    """The same where a Parquet file is meant."""
    return put(folder / "completions_00001.parquet", lfs_pointer(folder).read_bytes())


def web_page(folder: Path) -> Path:
    """What a download without a login leaves."""
    page = "\n\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body></body></html>\n"
    return put(folder / "rollouts.jsonl", page.encode())


def nothing(folder: Path) -> Path:
    """A file without a byte."""
    return put(folder / "rollouts.json", b"")


def blank(folder: Path) -> Path:
    """A file of newlines."""
    return put(folder / "rollouts.jsonl", b"\n\n \n")


def database(folder: Path) -> Path:
    """A SQLite database."""
    path = folder / "run.jsonl"
    with sqlite3.connect(path) as connection:
        connection.execute("create table rollouts (prompt text)")
    connection.close()
    return path


def picture(folder: Path) -> Path:
    """A PNG, where a table is meant."""
    return put(folder / "turn_01_01.json", b"\x89PNG\r\n\x1a\n" + bytes(range(256)))


def skyrl_batch(folder: Path) -> Path:
    """SkyRL's training input: a pickle that names a function of its own."""
    module, name = b"skyrl_train.training_batch", b"_rebuild_tensor_batch"
    texts = b"".join(b"\x8c" + bytes([len(text)]) + text for text in (module, name))
    # Protocol 4: push both texts, look the name up, call it with nothing.
    data = b"\x80\x04" + texts + b"\x93)R."
    return put(folder / "global_step_1_training_input.pkl", data)


REFUSED: dict[Callable[[Path], Path], str] = {
    plain_pickle: r"pickle",
    renamed_pickle: r"pickle",
    packed_pickle: r"pickle",
    torch_object: r"pickle|object|code|weights_only",
    old_torch_object: r"pickle",
    renamed_torch_object: r"pickle|object|code|zip|torch",
    tensors: r"tensor|prompt|response|sample|text",
    lfs_pointer: r"git lfs pull",
    lfs_parquet: r"git lfs pull",
    web_page: r"HTML|web page",
    nothing: r"empty|0 bytes|no rows",
    blank: r"empty|blank|no rows",
    database: r"SQLite|sqlite",
    picture: r"PNG|image|picture",
    skyrl_batch: r"pickle",
}
"""Writer of a file that must be refused -> what the message must speak of."""
