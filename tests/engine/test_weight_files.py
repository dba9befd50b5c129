"""Weights that torch has saved: read as the safetensors are, and nothing in them can run."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint import CheckpointError, load_weights, tensor_names
from engine.models.nano import load_nano
from tests.engine.models.global_local import DIRECTORIES

NANO = DIRECTORIES["nano"] / "tiny"


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    """Nano's, with heads and tables that share their memory, as the released file has them."""
    tensors = load_file(NANO / "model.safetensors")
    tensors["text_lm_head.weight"] = tensors["transformer.wte.weight"]
    return tensors


def checkpoint(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    shutil.copy(NANO / "config.json", directory)
    return directory


def equal(directory: Path) -> bool:
    ours, theirs = load_nano(directory).state_dict(), load_nano(NANO).state_dict()
    return ours.keys() == theirs.keys() and all(
        torch.equal(tensor, theirs[name]) for name, tensor in ours.items()
    )


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_of_torch_is_read_like_safetensors(tmp_path, tensors, zipped):
    path = checkpoint(tmp_path) / "pytorch_model.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
    assert tensor_names(tmp_path) == tensors.keys()
    assert equal(tmp_path)


def test_shards_of_torch(tmp_path, tensors):
    checkpoint(tmp_path)
    names = sorted(tensors)
    parts = {"a.bin": names[:30], "b.bin": names[30:]}
    for file, part in parts.items():
        torch.save({name: tensors[name] for name in part}, tmp_path / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert equal(tmp_path)
    (tmp_path / "b.bin").unlink()
    with pytest.raises(CheckpointError, match=r"bin\.index\.json names absent shards: b\.bin"):
        load_nano(tmp_path)


def test_safetensors_come_first(tmp_path, tensors):
    checkpoint(tmp_path)
    shutil.copy(NANO / "model.safetensors", tmp_path)
    torch.save({"other": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    assert equal(tmp_path)


def test_tensors_that_do_not_fit_are_named(tmp_path, tensors):
    name = "transformer.ln_f.bias"
    tensors[name] = torch.zeros(3)
    torch.save(tensors, checkpoint(tmp_path) / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"misshapen transformer\.ln_f\.bias: \[3\]"):
        load_nano(tmp_path)


class Harmful:
    """What it is rebuilt with runs when a careless reader unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_run_something_is_refused(tmp_path, zipped):
    traces = tmp_path / "it_ran"
    path = tmp_path / "pytorch_model.bin"
    saved = {"weight": torch.zeros(2), "more": Harmful(traces)}
    torch.save(saved, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"not a readable file of tensors and nothing else"):
        tensor_names(tmp_path)
    assert not traces.exists()
    path.write_bytes(pickle.dumps(Harmful(traces), protocol=2))
    with pytest.raises(CheckpointError, match=r"not a readable file of tensors and nothing else"):
        tensor_names(tmp_path)
    assert not traces.exists()


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04 cut short"])
def test_a_broken_file_is_refused(tmp_path, content):
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is not a readable file"):
        tensor_names(tmp_path)


@pytest.mark.parametrize("saved", [[torch.zeros(2)], {"weights": {"a": torch.zeros(2)}}, 7])
def test_something_else_than_named_tensors_is_refused(tmp_path, saved):
    torch.save(saved, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="holds something else than named tensors"):
        load_weights(torch.nn.Linear(1, 1), tmp_path, device="cpu", dtype=None)


def test_both_formats_give_the_same_bits_in_any_dtype(tmp_path):
    stored = {"weight": torch.randn(3, 2).to(torch.bfloat16), "bias": torch.randn(3).half()}
    read = []
    for name, save in (("model.safetensors", save_file), ("pytorch_model.bin", torch.save)):
        directory = tmp_path / name
        directory.mkdir()
        save(stored, directory / name)
        with torch.device("meta"):
            module = torch.nn.Linear(2, 3)
        load_weights(module, directory, device="cpu", dtype=None)
        read.append(module)
    one, other = read
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.bias, other.bias)
    assert one.weight.dtype == torch.float32
