"""The delay-pattern model against golden embeddings, hidden states and logits; its loading."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint import CheckpointError
from engine.codec.reference import normalise_loudness
from engine.models.delay import DelayConfig, DelayModel, load_delay
from kernels.attention import attend_sequence

VECTORS = Path(__file__).parents[2] / "vectors"
DELAY = VECTORS / "delay"
FORWARD = ["tts_plain", "tts_clone", "continuation_clone"]
STACK = {
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
    "max_position_embeddings": 40960,
    "vocab_size": 155648,
}
STACK_8B = {
    **STACK,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
}
STACK_1_7B = {
    **STACK,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
}


@pytest.fixture(scope="module")
def models():
    return {name: load_delay(DELAY / f"tiny_{name}") for name in "ab"}


@pytest.fixture(scope="module")
def golden():
    return load_file(DELAY / "forward.safetensors")


@pytest.fixture(scope="module")
def grids():
    return load_file(DELAY / "prompts.safetensors")


def whole(layer, q, k, v):
    """Attention over one whole sequence."""
    hidden = torch.ones(len(q), len(q)).triu(1).bool()
    bias = torch.zeros(len(q), len(q)).masked_fill(hidden, float("-inf"))
    return attend_sequence(q, k.transpose(0, 1), v.transpose(0, 1), bias)


def run(model, grid):
    rotation = model.config.backbone.rotations(len(grid), like=model.lm_heads[0].weight)
    return model.backbone(grid, rotation, whole)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("case", FORWARD)
def test_forward(case, name, models, golden, grids):
    model, prompt = models[name], f"{case}_{name}"
    grid = grids[f"{prompt}.input_ids"][0]
    embedded = model.embed(grid[-8:])
    expected = golden[f"{prompt}.inputs_embeds_last8"][0]
    torch.testing.assert_close(embedded, expected, atol=1e-5, rtol=0)
    hidden = run(model, grid)[-8:]
    torch.testing.assert_close(hidden, golden[f"{prompt}.hidden_last8"][0], atol=1e-4, rtol=0)
    text, audio = model.logits(hidden)
    expected = golden[f"{prompt}.text_logits_last4"][0]
    torch.testing.assert_close(text[-4:], expected, atol=2e-4, rtol=0)
    expected = golden[f"{prompt}.audio_logits_last2"][0]
    torch.testing.assert_close(audio[-2:], expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize("row", [0, 1])
def test_rows_of_a_padded_batch(row, models, golden, grids):
    """Left padding only shifts positions, which changes nothing but the rounding."""
    mask = grids["batch2.attention_mask"][row].bool()
    text, audio = models["a"].logits(run(models["a"], grids["batch2.input_ids"][row][mask])[-2:])
    torch.testing.assert_close(text, golden["batch2.text_logits_last2"][row], atol=2e-4, rtol=0)
    expected = golden["batch2.audio_logits_last1"][row]
    torch.testing.assert_close(audio[-1:], expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize("name", ["a", "b"])
def test_fused_weights_change_nothing(name, models, grids):
    plain = DelayModel(models[name].config)
    plain.load_state_dict(models[name].state_dict())
    grid = grids[f"tts_clone_{name}.input_ids"][0]
    ours, fused = run(plain, grid), run(models[name], grid)
    torch.testing.assert_close(ours, fused, atol=1e-5, rtol=0)
    for one, other in zip(plain.logits(ours), models[name].logits(fused), strict=True):
        torch.testing.assert_close(one, other, atol=5e-5, rtol=0)


def test_the_pad_code_counts_in_the_sum(models):
    """Its embedding is trained; leaving it out would change every text row."""
    model = models["a"]
    row = torch.full((1, 9), 1024)
    row[:, 0] = 5
    pads = sum(table.weight[1024] for table in model.emb_ext)
    assert pads.abs().max() > 0.1
    expected = model.language_model.embed_tokens.weight[5] + pads
    torch.testing.assert_close(model.embed(row)[0], expected, atol=1e-5, rtol=0)


def shapes(stack, n_vq):
    with torch.device("meta"):
        config = {"n_vq": n_vq, "audio_vocab_size": 1024, "language_config": stack}
        model = DelayModel(DelayConfig.from_json(config))
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def released(name):
    manifest = json.loads((VECTORS / f"manifest_{name}.json").read_text())
    return {key: tuple(shape) for key, shape in manifest.items()}


def parameters(tensors):
    return sum(torch.Size(shape).numel() for shape in tensors.values())


def test_mosstts_has_exactly_the_released_tensors():
    ours = shapes(STACK_8B, 32)
    assert ours == released("delay_8b")
    assert parameters(ours) == 8_489_841_664


def test_ttsd_and_sound_effect_have_half_the_codebooks():
    ours = shapes(STACK_8B, 16)
    beyond = {f"emb_ext.{i}.weight" for i in range(16, 32)}
    beyond |= {f"lm_heads.{i}.weight" for i in range(17, 33)}
    assert ours == {k: v for k, v in released("delay_8b").items() if k not in beyond}
    assert parameters(ours) == 8_355_492_864


def test_voice_generator_has_exactly_the_released_tensors():
    ours = shapes(STACK_1_7B, 16)
    assert ours == released("voice_generator")
    assert parameters(ours) == 2_114_118_656


@pytest.mark.parametrize("name", ["a", "b"])
def test_tiny_checkpoints_hold_what_they_list(name, models):
    keys = json.loads((DELAY / f"tiny_{name}" / "keys.json").read_text())
    ours = {key: list(tensor.shape) for key, tensor in models[name].state_dict().items()}
    assert ours == keys


@pytest.fixture
def checkpoint(tmp_path):
    """A copy whose tensors a test may change: (directory, tensors, save)."""
    source = DELAY / "tiny_b"
    shutil.copyfile(source / "config.json", tmp_path / "config.json")
    tensors = load_file(source / "model.safetensors")

    def save():
        save_file(tensors, tmp_path / "model.safetensors")

    return tmp_path, tensors, save


def test_missing_unexpected_and_misshapen_tensors_are_named(checkpoint):
    directory, tensors, save = checkpoint
    del tensors["emb_ext.31.weight"]
    tensors["lm_heads.33.weight"] = torch.zeros(129, 64)
    tensors["lm_heads.1.weight"] = torch.zeros(128, 64)
    save()
    with pytest.raises(CheckpointError) as raised:
        load_delay(directory)
    for problem in (
        "missing emb_ext.31.weight [129, 64]",
        "unexpected lm_heads.33.weight [129, 64]",
        "misshapen lm_heads.1.weight: [128, 64], expected [129, 64]",
    ):
        assert problem in str(raised.value)


def test_the_text_head_may_have_its_other_name(checkpoint, models):
    directory, tensors, save = checkpoint
    tensors["language_model.lm_head.weight"] = tensors.pop("lm_heads.0.weight")
    save()
    loaded = load_delay(directory)
    assert torch.equal(loaded.lm_heads[0].weight, models["b"].lm_heads[0].weight)


def test_two_text_heads_are_one_too_many(checkpoint):
    directory, tensors, save = checkpoint
    tensors["language_model.lm_head.weight"] = tensors["lm_heads.0.weight"].clone()
    save()
    with pytest.raises(CheckpointError, match=r"unexpected language_model\.lm_head\.weight"):
        load_delay(directory)


def test_half_precision_is_refused():
    with pytest.raises(ValueError, match="use bfloat16 or float32"):
        load_delay(DELAY / "tiny_b", dtype=torch.float16)


@pytest.mark.parametrize("clip", ["quiet", "target", "loud", "slightly_quiet", "zeros"])
def test_loudness_of_references(clip):
    golden = load_file(DELAY / "loudness.safetensors")
    got = torch.from_numpy(normalise_loudness(golden[f"{clip}.in"].numpy()))
    torch.testing.assert_close(got, golden[f"{clip}.out"], atol=1e-6, rtol=0)


def test_loudness_of_nothing():
    assert normalise_loudness(torch.zeros(0).numpy()).shape == (0,)
