"""What is trained is what serves: packed, teacher-forced passes against the serving path."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.models.realtime import load_realtime
from engine.train import objective
from engine.train.checkpoint import trainable
from engine.train.objective import code_logits, code_losses, hidden_states
from engine.train.packing import IGNORE

REALTIME = Path(__file__).parents[2] / "vectors" / "realtime"


@pytest.fixture(scope="module")
def model():
    return trainable(REALTIME / "tiny")


@pytest.fixture(scope="module")
def backbone():
    return load_file(REALTIME / "backbone.safetensors")


def states(model, grid, *lengths):
    return hidden_states(model, model.embed(grid), lengths)


def forced(model, hidden, codes):
    """The serving path's logits, drawn one codebook after the other, with its choices overruled."""
    seen = []

    def choose(codebook, logits):
        seen.append(logits)
        return codes[:, codebook]

    model.depth(hidden, choose)
    return torch.stack(seen, 1)


def test_hidden_states_are_the_released_ones(model, backbone):
    hidden = states(model, backbone["single_input_ids"], 96)
    torch.testing.assert_close(hidden, backbone["single_last_hidden"], atol=5e-5, rtol=0)


def test_packed_sequences_do_not_see_each_other(model, backbone):
    grid, lengths = backbone["single_input_ids"], (60, 1, 35)
    separate = torch.cat([states(model, part, len(part)) for part in grid.split(lengths)])
    torch.testing.assert_close(states(model, grid, *lengths), separate, atol=5e-5, rtol=0)
    assert not torch.allclose(states(model, grid, 96)[61:], separate[61:], atol=1e-2)


def test_long_sequences_give_the_same(model, backbone, monkeypatch):
    """Above a length another attention kernel takes over."""
    grid = backbone["single_input_ids"]
    short = states(model, grid, 60, 36)
    monkeypatch.setattr(objective, "_LONG", 40)
    torch.testing.assert_close(states(model, grid, 60, 36), short, atol=5e-5, rtol=0)


def test_tap_is_what_leaves_its_layer(model, backbone):
    embedded = model.embed(backbone["single_input_ids"])
    hidden, tapped = hidden_states(model, embedded, (96,), tap=0)
    torch.testing.assert_close(tapped, backbone["single_after_layer0"], atol=5e-5, rtol=0)
    torch.testing.assert_close(hidden, backbone["single_last_hidden"], atol=5e-5, rtol=0)


def test_logits_are_the_released_ones(model):
    want = load_file(REALTIME / "local.safetensors")
    logits = code_logits(model, want["backbone_hidden"], want["codes"])
    torch.testing.assert_close(logits, want["logits"], atol=1e-4, rtol=0)


def test_one_pass_equals_the_serving_path_codebook_by_codebook(model, backbone):
    hidden = states(model, backbone["single_input_ids"], 96)
    codes = torch.randint(0, 1024, (96, 16), generator=torch.Generator().manual_seed(1))
    served = load_realtime(REALTIME / "tiny")
    with torch.no_grad():
        torch.testing.assert_close(
            code_logits(model, hidden, codes), forced(served, hidden, codes), atol=2e-4, rtol=0
        )


def test_unlabelled_codes_are_fed_as_no_sound(model):
    hidden = torch.randn(1, 64)
    end = torch.tensor([[1026] + [1024] * 15])
    ignored = torch.tensor([[1026] + [IGNORE] * 15])
    assert code_logits(model, hidden, end).equal(code_logits(model, hidden, ignored))


def test_ignored_codes_cost_nothing():
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[0, IGNORE, 4], [IGNORE] * 3])
    losses = code_losses(logits, labels)
    assert losses.count_nonzero() == 2
    want = -logits[0, 2].log_softmax(-1)[4]
    torch.testing.assert_close(losses[0, 2], want)


def total_loss(model, grid):
    codes = grid[1:, 1:]
    hidden = states(model, grid, len(grid))[:-1]
    return code_losses(code_logits(model, hidden, codes), codes).mean()


def test_every_weight_learns_and_the_pad_rows_stay(backbone):
    model = trainable(REALTIME / "tiny")
    total_loss(model, backbone["single_input_ids"]).backward()
    still = [name for name, p in model.named_parameters() if not p.grad.count_nonzero()]
    assert still == []
    for table in model.embed_tokens[1:]:
        assert not table.weight.grad[1024].count_nonzero()


def test_bfloat16_gradients_follow_those_of_float32(backbone):
    gradients = []
    for autocast in (False, True):
        model = trainable(REALTIME / "tiny")
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            total_loss(model, backbone["single_input_ids"]).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    exact, rounded = gradients
    assert rounded.isfinite().all()
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.98
