"""Checkpoints: shards, dtypes, and errors that name every tensor that does not fit."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from engine.checkpoint import CheckpointError, load_weights, read_json


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.linear = nn.Linear(4, 3)
        self.register_buffer("step", torch.zeros(2, dtype=torch.int64))


@pytest.fixture
def weights():
    generator = torch.Generator().manual_seed(7)
    return {
        "table.weight": torch.randn(5, 4, generator=generator),
        "linear.weight": torch.randn(3, 4, generator=generator),
        "linear.bias": torch.randn(3, generator=generator),
        "step": torch.tensor([3, 4]),
    }


def build():
    with torch.device("meta"):
        return Small()


def load(directory, dtype=None, **options):
    module = build()
    load_weights(module, directory, device="cpu", dtype=dtype, **options)
    return module


def write_shards(directory, weights, *, skip=()):
    weight_map = {}
    for number, (name, tensor) in enumerate(weights.items()):
        file = f"model-{number + 1:05d}-of-{len(weights):05d}.safetensors"
        weight_map[name] = file
        if name not in skip:
            save_file({name: tensor}, directory / file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("asked", [None, torch.bfloat16, torch.float32])
def test_any_float_dtype_is_read_and_cast(tmp_path, weights, stored, asked):
    kept = {k: v.to(stored) if v.is_floating_point() else v for k, v in weights.items()}
    save_file(kept, tmp_path / "model.safetensors")
    module = load(tmp_path, asked)
    for name, tensor in module.state_dict().items():
        expected = kept[name]
        if expected.is_floating_point():
            expected = expected.to(asked or torch.float32)
        assert tensor.dtype == expected.dtype
        assert torch.equal(tensor, expected)
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_loaded_weights_compute(tmp_path, weights):
    save_file(weights, tmp_path / "model.safetensors")
    module = load(tmp_path)
    ids = torch.tensor([0, 4])
    expected = weights["table.weight"][ids] @ weights["linear.weight"].T + weights["linear.bias"]
    torch.testing.assert_close(module.linear(module.table(ids)), expected)


def test_many_shards_equal_one(tmp_path, weights):
    write_shards(tmp_path, weights)
    for name, tensor in load(tmp_path).state_dict().items():
        assert torch.equal(tensor, weights[name])


def test_index_naming_an_absent_shard_is_an_error(tmp_path, weights):
    write_shards(tmp_path, weights, skip=("linear.bias", "step"))
    with pytest.raises(CheckpointError) as error:
        load(tmp_path)
    assert "model-00003-of-00004.safetensors" in str(error.value)
    assert "model-00004-of-00004.safetensors" in str(error.value)
    assert "model-00001-of-00004.safetensors" not in str(error.value)


def test_one_error_names_every_tensor_that_does_not_fit(tmp_path, weights):
    del weights["linear.bias"], weights["step"]
    weights["extra.one"] = torch.zeros(2)
    weights["extra.two"] = torch.zeros(2)
    weights["table.weight"] = torch.zeros(6, 4)
    weights["linear.weight"] = torch.zeros(4, 3)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError) as error:
        load(tmp_path)
    assert str(error.value).splitlines()[1:] == [
        "  missing linear.bias [3]",
        "  missing step [2]",
        "  unexpected extra.one [2]",
        "  unexpected extra.two [2]",
        "  misshapen linear.weight: [4, 3], expected [3, 4]",
        "  misshapen table.weight: [6, 4], expected [5, 4]",
    ]


def test_optional_tensors_may_be_present_or_absent(tmp_path, weights):
    save_file(weights, tmp_path / "model.safetensors")
    load(tmp_path, optional={"unused.weight"})
    save_file(weights | {"unused.weight": torch.zeros(9)}, tmp_path / "model.safetensors")
    load(tmp_path, optional={"unused.weight"})
    with pytest.raises(CheckpointError, match=r"unexpected unused\.weight"):
        load(tmp_path)


def test_an_optional_tensor_that_the_module_has_is_required(tmp_path, weights):
    del weights["linear.bias"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"missing linear\.bias"):
        load(tmp_path, optional={"linear.bias"})


def test_rename_maps_checkpoint_names_to_module_names(tmp_path, weights):
    save_file({f"model.{k}": v for k, v in weights.items()}, tmp_path / "model.safetensors")
    module = load(tmp_path, rename=lambda name: name.removeprefix("model."))
    assert torch.equal(module.linear.weight, weights["linear.weight"])


def test_a_path_that_is_no_checkpoint_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="is not a directory"):
        load(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x08\x00\x00\x00not weights")
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        load(tmp_path)


def test_an_index_without_a_map_is_an_error(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no weight_map"):
        load(tmp_path)


def test_read_json(tmp_path):
    (tmp_path / "config.json").write_text('{"rvq": 8}')
    assert read_json(tmp_path, "config.json") == {"rvq": 8}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"has no config\.json"),
        ("{rvq", "is not JSON"),
        ("[8]", "holds list, expected an object"),
    ],
)
def test_read_json_errors(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_json(tmp_path, "config.json")


def test_read_json_of_no_directory(tmp_path):
    with pytest.raises(CheckpointError, match="is not a directory"):
        read_json(tmp_path / "absent", "config.json")
