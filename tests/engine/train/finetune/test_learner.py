"""One update, by whatever way its gradient is computed."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file

from engine.models.realtime import RealtimeConfig, RealtimeModel
from engine.train.checkpoint import trainable
from engine.train.finetune.learner import Learner, recompute_layers, scheduled
from engine.train.packing import Batch
from tests.engine.train.finetune.recordings import MODEL, VECTORS


def batch_of(*lengths, start=0):
    """Parts of a golden grid; each row has to give the codes of the next."""
    rows = load_file(VECTORS / "realtime" / "backbone.safetensors")["single_input_ids"]
    grid = rows[start : start + sum(lengths)]
    return Batch(grid, lengths, grid[:, 1:].roll(-1, 0))


def weights_after(batches, recompute=False, updates=2):
    model = trainable(MODEL)
    if recompute:
        recompute_layers(model)
    learner = Learner(model, 1e-3, torch.float32)
    for number in range(updates):
        learner.update(batches, (number + 1) / updates)
    return torch.cat([weight.flatten() for weight in model.state_dict().values()])


def test_accumulated_batches_are_one_large_batch():
    apart = weights_after([batch_of(30), batch_of(40, start=30)])
    torch.testing.assert_close(apart, weights_after([batch_of(30, 40)]), atol=2e-5, rtol=0)
    assert not torch.allclose(apart, weights_after([batch_of(30)]), atol=1e-4)


def test_recomputed_layers_give_the_same_update():
    batches = [batch_of(50)]
    torch.testing.assert_close(
        weights_after(batches, recompute=True), weights_after(batches), atol=2e-5, rtol=0
    )


def test_updates_lower_the_loss():
    learner, batches = Learner(trainable(MODEL), 3e-3, torch.float32), [batch_of(60)]
    before = learner.loss(batches)
    for _ in range(10):
        learner.update(batches, 0.2)
    assert learner.loss(batches) < before - 0.3


def test_a_learner_goes_on_where_another_was():
    batches = [batch_of(50)]
    first = Learner(trainable(MODEL), 1e-3, torch.float32)
    first.update(batches, 0.3)
    second = Learner(trainable(MODEL), 1e-3, torch.float32)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for learner in (first, second):
        learner.update(batches, 0.6)
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert one.equal(other)


def test_the_rate_rises_and_falls():
    rates = [scheduled(share / 20) for share in range(21)]
    assert rates[0] == 0
    assert rates[2] == max(rates) == 1
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-9)


def full_size_config():
    stack = {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
    }
    return RealtimeConfig.from_json(
        {
            "rvq": 16,
            "audio_vocab_size": 1027,
            "audio_pad_token": 1024,
            "language_config": stack
            | {
                "vocab_size": 151936,
                "num_hidden_layers": 28,
                "max_position_embeddings": 40960,
            },
            "local_config": stack | {"num_hidden_layers": 4, "max_position_embeddings": 33},
        }
    )


@pytest.mark.parametrize("recompute", [False, True])
def test_the_full_size_model_takes_a_step_on_the_meta_device(recompute):
    with torch.device("meta"):
        model = RealtimeModel(full_size_config()).requires_grad_(True)
    manifest = json.loads((VECTORS / "manifest_realtime.json").read_text())["tensors"]
    del manifest["language_model.embed_tokens.weight"]
    assert {name: list(p.shape) for name, p in model.named_parameters()} == manifest
    if recompute:
        recompute_layers(model)
    learner = Learner(model, 1e-4, torch.float32)
    seen = []
    for name, weight in model.named_parameters():
        weight.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    loss, norm = learner.update([batch_of(60, 36)], 0.5)
    assert (loss.device.type, loss.shape, norm.shape) == ("meta", (), ())
    assert set(seen) == set(manifest)
