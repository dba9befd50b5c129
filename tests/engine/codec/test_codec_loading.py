"""Checkpoints of the codec: shapes, spellings, and errors that say what is wrong."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint import CheckpointError
from engine.codec.codec import load_codec
from engine.codec.stream import DecoderStream, EncoderStream

VECTORS = Path(__file__).parents[2] / "vectors"
TINY = VECTORS / "codec" / "v1" / "tiny"


@pytest.fixture(scope="module")
def weights():
    return load_file(TINY / "model.safetensors")


@pytest.fixture(scope="module")
def tiny_config():
    return json.loads((TINY / "config.json").read_text())


@pytest.fixture(scope="module")
def codes():
    return torch.randint(64, (32, 2, 30), generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def sound(codes):
    return load_codec(TINY).decode(codes)


def write(directory, config, weights):
    (directory / "config.json").write_text(json.dumps(config))
    tensors = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_file(tensors, directory / "model.safetensors")
    return directory


def respell(weights, *spellings):
    def renamed(name):
        for old, new in spellings:
            name = name.replace(old, new)
        return name

    return {renamed(name): tensor for name, tensor in weights.items()}


def test_old_weight_norm_spelling(tmp_path, tiny_config, weights, codes, sound):
    prefix = "parametrizations.weight.original"
    old = respell(weights, (prefix + "0", "weight_g"), (prefix + "1", "weight_v"))
    assert any(name.endswith("weight_g") for name in old)
    assert torch.equal(load_codec(write(tmp_path, tiny_config, old)).decode(codes), sound)


def fuse(weights):
    """The same projections stored as plain weights."""
    fused = {}
    for name, tensor in weights.items():
        stem, norm, part = name.partition(".parametrizations.weight.original")
        if not norm:
            fused[name] = tensor
        elif part == "0":
            direction = weights[f"{stem}{norm}1"]
            length = direction.flatten(1).norm(dim=1)[:, None, None]
            fused[f"{stem}.weight"] = tensor * direction / length
    return fused


def test_fused_weights(tmp_path, tiny_config, weights, codes, sound):
    got = load_codec(write(tmp_path, tiny_config, fuse(weights))).decode(codes)
    torch.testing.assert_close(got, sound, atol=1e-4, rtol=1e-5)


V2_SPELLING = (
    ("in_projs.0", "in_proj"),
    ("out_projs.0", "out_proj"),
    ("linear1", "ffn.0"),
    ("linear2", "ffn.2"),
)


def with_square_projections(weights, config):
    """The same codec as v2 stores it: an identity matrix where v1 has no projection."""
    weights = respell(weights, *V2_SPELLING)
    for part in ("encoder", "decoder"):
        for index, stage in enumerate(config[f"{part}_kwargs"]):
            for end in ("input", "output"):
                if stage.get(f"{end}_dimension") == stage.get("d_model", 0):
                    name = f"{part}.{index}.{end}_proj.weight"
                    assert name not in weights
                    weights[name] = torch.eye(stage["d_model"])
    return weights


def test_v2_spelling_and_square_projections(tmp_path, tiny_config, weights, codes, sound):
    directory = write(tmp_path, tiny_config, with_square_projections(weights, tiny_config))
    torch.testing.assert_close(load_codec(directory).decode(codes), sound, atol=1e-4, rtol=1e-5)


def test_stereo_is_one_interleaved_stream(tmp_path, tiny_config, weights, codes, sound):
    # At half the rate, two channels give the stages the very stream that one channel gave them.
    stereo = tiny_config | {
        "sample_rate": 600,
        "sampling_rate": 600,
        "downsample_rate": 48,
        "number_channels": 2,
        "enable_channel_interleave": True,
    }
    codec = load_codec(write(tmp_path, stereo, weights))
    assert (codec.config.channels, codec.config.samples_per_frame) == (2, 48)
    got = codec.decode(codes)
    assert torch.equal(got, sound.unflatten(-1, (-1, 2))[:, 0].transpose(1, 2))
    streamed = DecoderStream(codec, 2).step([1, 0], codes[..., :15].permute(1, 2, 0))
    torch.testing.assert_close(streamed.transpose(1, 2), got[..., : 15 * 48], atol=2e-4, rtol=1e-4)
    want, _ = load_codec(TINY).encode(sound)
    assert torch.equal(codec.encode(got)[0], want)
    pieces = EncoderStream(codec, 2).step([1, 0], got[..., : 15 * 48])
    assert torch.equal(pieces.permute(2, 0, 1), want[..., :15])


def test_bfloat16_leaves_the_quantizer_alone(codes, sound):
    codec = load_codec(TINY, dtype=torch.bfloat16)
    assert codec.dtype == torch.bfloat16
    assert codec.quantizer.tables.dtype == torch.float32
    stream = DecoderStream(codec, 2)
    streamed = stream.step([1, 0], codes[..., :15].permute(1, 2, 0))[..., 0]
    want = sound[:, 0, : streamed.shape[1]]
    noise_db = 10 * torch.log10((streamed - want).square().mean() / want.square().mean())
    assert streamed.dtype == torch.float32
    assert -60 < noise_db < -20


def test_every_tensor_that_does_not_fit_is_named(tmp_path, tiny_config, weights):
    wrong = dict(weights)
    wrong.pop("decoder.2.transformer.layers.1.norm2.bias")
    wrong["decoder.9.surprise"] = torch.zeros(1)
    wrong["quantizer.quantizers.3.codebook.weight"] = torch.zeros(63, 8)
    with pytest.raises(CheckpointError) as error:
        load_codec(write(tmp_path, tiny_config, wrong))
    assert "missing decoder.2.transformer.layers.1.norm2.bias" in str(error.value)
    assert "unexpected decoder.9.surprise" in str(error.value)
    assert "misshapen quantizer.quantizers.3.codebook.weight: [63, 8]" in str(error.value)


@pytest.mark.parametrize("release", ["v2", "nano"])
def test_a_tensor_is_named_as_its_checkpoint_names_it(tmp_path, release):
    tiny = VECTORS / "codec" / release / "tiny"
    wrong = load_file(tiny / "model.safetensors")
    layer = "decoder.{}.transformer.layers.0.".format(0 if release == "v2" else 1)
    wrong.pop(f"{layer}self_attn.in_proj.weight")
    wrong.pop(f"{layer}ffn.0.weight")
    wrong[f"{layer}ffn.2.weight"] = torch.zeros(3, 5)
    wrong[f"{layer}ffn.1.weight"] = torch.zeros(1)
    config = json.loads((tiny / "config.json").read_text())
    with pytest.raises(CheckpointError) as error:
        load_codec(write(tmp_path, config, wrong))
    lines = str(error.value).splitlines()
    assert "(4 tensors)" in lines[0]
    width, ff = (48, 96) if release == "v2" else (32, 64)
    assert lines[1:] == [
        f"  missing {layer}ffn.0.weight [{ff}, {width}]",
        f"  missing {layer}self_attn.in_proj.weight [{3 * width}, {width}]",
        f"  unexpected {layer}ffn.1.weight [1]",
        f"  misshapen {layer}ffn.2.weight: [3, 5], expected [{width}, {ff}]",
    ]


@pytest.mark.parametrize("release", ["v2", "nano"])
def test_projections_of_the_stereo_codecs_are_all_stored(tmp_path, release):
    tiny = VECTORS / "codec" / release / "tiny"
    weights = load_file(tiny / "model.safetensors")
    square = [
        name
        for name, tensor in weights.items()
        if name.endswith("put_proj.weight") and tensor.shape[0] == tensor.shape[1]
    ]
    assert len(square) > 1
    weights.pop(square[0])
    config = json.loads((tiny / "config.json").read_text())
    with pytest.raises(CheckpointError, match=rf"missing {square[0]}"):
        load_codec(write(tmp_path, config, weights))


@pytest.mark.parametrize("spelling", ["fused", "old", "bfloat16"])
def test_other_ways_to_store_nano(tmp_path, spelling):
    tiny = VECTORS / "codec" / "nano" / "tiny"
    weights = load_file(tiny / "model.safetensors")
    config = json.loads((tiny / "config.json").read_text())
    prefix = "parametrizations.weight.original"
    if spelling == "fused":
        weights = fuse(weights)
    elif spelling == "old":
        weights = respell(weights, (prefix + "0", "weight_g"), (prefix + "1", "weight_v"))
    else:
        weights = {name: tensor.bfloat16() for name, tensor in weights.items()}
    codes = torch.randint(64, (16, 1, 20), generator=torch.Generator().manual_seed(6))
    codec, want = load_codec(write(tmp_path, config, weights)), load_codec(tiny).decode(codes)
    got = codec.decode(codes)
    assert codec.dtype == torch.float32
    if spelling == "bfloat16":
        noise_db = 10 * torch.log10((got - want).square().mean() / want.square().mean())
        assert -60 < noise_db < -20
    else:
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-5)


def test_nothing_in_gives_nothing_out():
    codec = load_codec(TINY)
    codes, lengths = codec.encode(torch.zeros(2, 1, 0))
    assert (codes.shape, lengths.tolist()) == ((32, 2, 0), [0, 0])
    assert codec.decode(codes).shape == (2, 1, 0)
