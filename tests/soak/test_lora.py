"""Low-rank adapters (peft): only they are trained, and a merged checkpoint is a plain one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from engine.checkpoint import tensor_names
from engine.models.realtime import RealtimeModel, load_realtime
from engine.train.checkpoint import save_weights, trainable
from engine.train.finetune.__main__ import main
from engine.train.finetune.learner import Learner
from engine.train.finetune.lora import add_adapters, plain_weights
from tests.engine.train.finetune.recordings import CODEC, MODEL, good_clips, write_manifest
from tests.engine.train.finetune.test_learner import batch_of


@pytest.fixture
def adapted() -> RealtimeModel:
    """Adapters after a few updates, so that they change something."""
    model = trainable(MODEL)
    add_adapters(model, rank=4)
    learner = Learner(model, 1e-2, torch.float32)
    for _ in range(4):
        learner.update([batch_of(60)], 0.2)
    return model


def test_every_linear_layer_is_adapted_and_nothing_else_is_trained(adapted: RealtimeModel) -> None:
    learned = {name for name, weight in adapted.named_parameters() if weight.requires_grad}
    assert {name.split(".lora_")[0] for name in learned} == {
        name for name, part in adapted.named_modules() if hasattr(part, "base_layer")
    }
    assert len(learned) == 2 * (7 * 4 + 16)
    original, now = load_realtime(MODEL).state_dict(), adapted.state_dict()
    for name, weight in original.items():
        kept = now.get(name, now.get(name.replace(".weight", ".base_layer.weight")))
        assert weight.equal(kept), name


def test_merged_weights_compute_what_the_adapters_do(
    adapted: RealtimeModel, tmp_path: Path
) -> None:
    save_weights(plain_weights(adapted), tmp_path / "m", source=MODEL, dtype=torch.float32)
    assert tensor_names(tmp_path / "m") == tensor_names(MODEL)
    losses = [
        Learner(model, 0.0, torch.float32).loss([batch_of(60)])
        for model in (trainable(tmp_path / "m"), adapted, trainable(MODEL))
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert losses[0] < losses[2] - 0.1


def test_a_run_with_adapters_leaves_a_plain_checkpoint(tmp_path: Path) -> None:
    data = write_manifest(tmp_path, good_clips(tmp_path, 6))
    out = tmp_path / "out"
    words = ("--model", MODEL, "--codec", CODEC, "--data", data, "--out", out, "--threads", 1)
    more = ("--lora", 4, "--epochs", 3, "--rate", "1e-2", "--dtype", "float32")
    assert main([str(word) for word in (*words, *more, "--gradient-checkpointing")]) == 0
    assert tensor_names(out / "model") == tensor_names(MODEL)
    load_realtime(out / "model")
    state = torch.load(out / "state.pt", weights_only=True)
    assert all(".lora_" in name for name in state["learner"]["weights"])
    result = json.loads((out / "result.json").read_text())
    assert result["validation_loss"] < result["validation_loss_at_start"]
