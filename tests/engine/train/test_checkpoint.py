"""A saved checkpoint is a released one, and a save that fails leaves the one before."""

import errno
import shutil
from pathlib import Path

import pytest
import torch

from engine.checkpoint import tensor_names
from engine.models.realtime import load_realtime
from engine.models.realtime_prompt import RealtimePrompt
from engine.train import checkpoint
from engine.train.checkpoint import save_checkpoint, trainable

TINY = Path(__file__).parents[2] / "vectors" / "realtime" / "tiny"


@pytest.fixture
def model():
    return trainable(TINY)


def weights(directory):
    return load_realtime(directory).state_dict()


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a.keys() | b.keys())


def test_what_was_saved_is_what_is_loaded(model, tmp_path):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    save_checkpoint(model, tmp_path / "new", source=TINY, dtype=torch.float32)
    assert same(weights(tmp_path / "new"), model.state_dict())
    assert tensor_names(tmp_path / "new") == tensor_names(TINY)
    RealtimePrompt.from_checkpoint(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_bfloat16_is_the_stored_precision(model, tmp_path):
    save_checkpoint(model, tmp_path / "new", source=TINY)
    assert same(weights(tmp_path / "new"), weights(TINY))
    assert (tmp_path / "new/model.safetensors").stat().st_size < 7_000_000


def test_a_checkpoint_is_saved_over_its_source(model, tmp_path):
    shutil.copytree(TINY, tmp_path / "same")
    with torch.no_grad():
        model.language_model.norm.weight.fill_(2)
    save_checkpoint(model, tmp_path / "same", source=tmp_path / "same")
    assert same(weights(tmp_path / "same"), model.state_dict())


def test_a_full_disk_leaves_the_last_good_checkpoint(model, tmp_path, monkeypatch):
    save_checkpoint(model, tmp_path / "out", source=TINY)

    def full(state, path, metadata):
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(model, tmp_path / "out", source=TINY)
    assert same(weights(tmp_path / "out"), weights(TINY))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_killed_save_is_no_obstacle_to_the_next(model, tmp_path):
    partial = tmp_path / ".out.partial"
    partial.mkdir()
    (partial / "model.safetensors").write_bytes(b"half of it")
    save_checkpoint(model, tmp_path / "out", source=TINY)
    assert same(weights(tmp_path / "out"), weights(TINY))
    assert not partial.exists()


def test_settings_alone_are_source_enough(model, tmp_path):
    shutil.copytree(TINY, tmp_path / "settings", ignore=shutil.ignore_patterns("*.safetensors"))
    save_checkpoint(model, tmp_path / "out", source=tmp_path / "settings")
    assert same(weights(tmp_path / "out"), weights(TINY))
