"""The model against the golden vectors of the released modules, on the tiny checkpoint."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.models.realtime import RealtimeConfig, RealtimeModel, load_realtime
from kernels.attention import attend_sequence
from kernels.sampling import penalise

VECTORS = Path(__file__).parents[2] / "vectors"
REALTIME = VECTORS / "realtime"


@pytest.fixture(scope="module")
def model() -> RealtimeModel:
    return load_realtime(REALTIME / "tiny")


class WholeSequence:
    """A cache for tests: keeps every layer's keys and values of one sequence by concatenation."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, layer, q, k, v):
        if layer in self.kept:
            old_k, old_v = self.kept[layer]
            k, v = torch.cat([old_k, k]), torch.cat([old_v, v])
        self.kept[layer] = (k, v)
        new, length = q.shape[0], k.shape[0]
        visible = torch.ones(new, length).tril(length - new).bool()
        bias = torch.zeros(new, length).masked_fill(~visible, float("-inf"))
        return attend_sequence(q, k.transpose(0, 1), v.transpose(0, 1), bias)


def run(model, grid, start=0, cache=None):
    positions = model.config.backbone.rotations(
        start + len(grid), like=model.embed_tokens[0].weight
    )
    return model.backbone(grid, positions[start:], cache or WholeSequence())


def test_embedding_sums_all_columns(model):
    want = load_file(REALTIME / "embed.safetensors")
    torch.testing.assert_close(model.embed(want["input_ids"]), want["embeds"], atol=1e-6, rtol=0)


def test_backbone_hidden_states(model):
    want = load_file(REALTIME / "backbone.safetensors")
    hidden = run(model, want["single_input_ids"])
    torch.testing.assert_close(hidden, want["single_last_hidden"], atol=5e-5, rtol=0)


def test_backbone_in_pieces_equals_whole(model):
    want = load_file(REALTIME / "backbone.safetensors")
    grid, cache, start, hidden = want["single_input_ids"], WholeSequence(), 0, []
    for size in (80, 10, 1, 1, 1, 1, 1, 1):
        hidden.append(run(model, grid[start : start + size], start, cache))
        start += size
    torch.testing.assert_close(
        torch.cat(hidden), want["incremental_last_hidden"], atol=5e-5, rtol=0
    )


def test_first_layer_output(model):
    want = load_file(REALTIME / "backbone.safetensors")
    grid = want["single_input_ids"]
    x = model.embed(grid)
    torch.testing.assert_close(x, want["single_embeds"], atol=1e-6, rtol=0)
    rotation = model.config.backbone.rotations(len(grid), like=x)
    out = model.language_model.layers[0](0, x, rotation, WholeSequence())
    torch.testing.assert_close(out, want["single_after_layer0"], atol=5e-5, rtol=0)


def test_batched_prompts_equal_the_single_one(model):
    want = load_file(REALTIME / "backbone.safetensors")
    for row, length in enumerate(want["batch_lengths"].tolist()):
        grid = want["batch_input_ids"][row, -length:]
        hidden = want["batch_last_hidden"][row, -length:]
        torch.testing.assert_close(run(model, grid), hidden, atol=5e-5, rtol=0)


def test_depth_logits_teacher_forced(model):
    want = load_file(REALTIME / "local.safetensors")
    seen = []

    def choose(codebook, logits):
        seen.append(logits)
        return want["codes"][:, codebook].long()

    model.depth(want["backbone_hidden"], choose)
    torch.testing.assert_close(torch.stack(seen, 1), want["logits"], atol=1e-4, rtol=0)


def test_depth_greedy_codes(model):
    want = load_file(REALTIME / "local.safetensors")
    codes = model.depth(want["backbone_hidden"], lambda _, logits: logits.argmax(-1))
    assert torch.equal(codes, want["greedy_codes"].long())


@pytest.mark.parametrize("name", ["multiturn", "multiturn_trainlayout"])
def test_one_prefill_of_a_dialogue_gives_the_hidden_state_of_every_frame(model, name):
    want = load_file(REALTIME / f"{name}.safetensors")
    hidden = run(model, want["full_grid"])[want["frame_positions"]]
    frames = torch.cat([want[f"turn{turn}_frame_hidden"] for turn in range(3)])
    torch.testing.assert_close(hidden, frames, atol=5e-5, rtol=0)


def test_scores_of_the_first_frames(model):
    """Hidden states, and logits after the penalty, on the way of a greedy run."""
    want = load_file(REALTIME / "greedy_single.safetensors")
    prompt, text = want["prompt_ids"], want["text_ids"][:12]
    opening = torch.full((12, 17), 1024)
    opening[:, 0] = text
    opening[-1, 1] = 1025
    hidden = run(model, torch.cat([prompt, opening, want["step_input_ids"]]).long())
    first = len(prompt) + 11
    hidden = hidden[first : first + len(want["backbone_hidden"])]
    torch.testing.assert_close(hidden, want["backbone_hidden"], atol=5e-5, rtol=0)
    frames = want["raw_frames"].long()
    scores = []

    def choose(codebook, logits):
        recent = torch.zeros_like(logits, dtype=torch.bool)
        for frame in range(3):
            recent[frame, frames[:frame, codebook]] = True
        scores.append(penalise(logits, recent, torch.full((3,), 1.1)))
        return frames[:3, codebook]

    model.depth(hidden[:3], choose)
    torch.testing.assert_close(torch.stack(scores, 1), want["scores_first3"], atol=1e-4, rtol=0)


def test_fused_weights_change_nothing(model):
    config = RealtimeConfig.from_json(json.loads((REALTIME / "tiny/config.json").read_text()))
    plain = RealtimeModel(config)
    plain.load_state_dict(model.state_dict())
    grid = load_file(REALTIME / "backbone.safetensors")["single_input_ids"]
    torch.testing.assert_close(run(plain, grid), run(model, grid), atol=1e-5, rtol=0)


def test_full_size_model_has_exactly_the_released_tensors():
    manifest = json.loads((VECTORS / "manifest_realtime.json").read_text())
    released = {k: tuple(v) for k, v in manifest["tensors"].items()}
    stack = {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "max_position_embeddings": 40960,
    }
    config = RealtimeConfig.from_json(
        {
            "rvq": 16,
            "audio_vocab_size": 1027,
            "audio_pad_token": 1024,
            "language_config": {**stack, "vocab_size": 151936, "num_hidden_layers": 28},
            "local_config": {**stack, "num_hidden_layers": 4, "max_position_embeddings": 33},
        }
    )
    with torch.device("meta"):
        model = RealtimeModel(config)
    ours = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert released.pop("language_model.embed_tokens.weight") == (151936, 2048)
    assert ours == released
