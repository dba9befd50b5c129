"""Checkpoints of the codec: shapes, spellings, and errors that say what is wrong."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint import CheckpointError
from engine.codec.codec import AudioCodec, load_codec
from engine.codec.config import CodecConfig
from engine.codec.stream import DecoderStream, EncoderStream

VECTORS = Path(__file__).parents[2] / "vectors"
TINY = VECTORS / "codec" / "v1" / "tiny"


def patch(size):
    return {"module_type": "PatchedPretransform", "patch_size": size}


def transformer(input_dim, d_model, output_dim, layers):
    return {
        "module_type": "Transformer",
        "input_dimension": input_dim,
        "output_dimension": output_dim,
        "d_model": d_model,
        "num_heads": d_model // 64,
        "num_layers": layers,
        "dim_feedforward": 4 * d_model,
        "causal": True,
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "max_period": 10000,
        "gating": "none",
        "layer_scale": 0.01,
        "conv_layout": True,
    }


RELEASED_V1 = {
    "model_type": "speech_tokenizer",
    "sample_rate": 24000,
    "sampling_rate": 24000,
    "downsample_rate": 1920,
    "causal_transformer_context_duration": 10,
    "number_channels": None,
    "code_dim": 768,
    "version": "4.26.1.a",
    "encoder_kwargs": [
        patch(240),
        transformer(240, 768, 384, 12),
        patch(2),
        transformer(768, 768, 384, 12),
        patch(2),
        transformer(768, 768, 640, 12),
        patch(2),
        transformer(1280, 1280, 768, 32),
    ],
    "decoder_kwargs": [
        transformer(768, 1280, 1280, 32),
        patch(2),
        transformer(640, 768, 768, 12),
        patch(2),
        transformer(384, 768, 768, 12),
        patch(2),
        transformer(384, 768, 240, 12),
        patch(240),
    ],
    "quantizer_type": "rlfq",
    "quantizer_kwargs": {
        "quantizer_type": "rlfq",
        "input_dim": 768,
        "rvq_dim": 512,
        "output_dim": 768,
        "num_quantizers": 32,
        "codebook_size": 1024,
        "codebook_dim": 8,
    },
}


def test_full_size_has_exactly_the_released_tensors():
    config = CodecConfig.from_json(RELEASED_V1)
    with torch.device("meta"):
        tensors = AudioCodec(config).state_dict()
    manifest = json.loads((VECTORS / "manifest_codec_v1.json").read_text())
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == manifest["tensors"]
    for stages, part in ((config.encoder, "encoder"), (config.decoder, "decoder")):
        windows = [
            [index, stage.window_tokens]
            for index, stage in enumerate(stages)
            if hasattr(stage, "window_tokens")
        ]
        assert windows == manifest["_contexts"][part]
    decoder = config.decoder[::2]
    assert [stage.tokens_per_frame for stage in decoder] == [1, 2, 4, 8]
    assert (config.channels, config.samples_per_frame, config.frame_rate) == (1, 1920, 12.5)


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


def test_fused_weights(tmp_path, tiny_config, weights, codes, sound):
    fused = {}
    for name, tensor in weights.items():
        stem, norm, part = name.partition(".parametrizations.weight.original")
        if not norm:
            fused[name] = tensor
        elif part == "0":
            direction = weights[f"{stem}{norm}1"]
            length = direction.flatten(1).norm(dim=1)[:, None, None]
            fused[f"{stem}.weight"] = tensor * direction / length
    got = load_codec(write(tmp_path, tiny_config, fused)).decode(codes)
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


def with_stage(**changes):
    stages = RELEASED_V1["decoder_kwargs"]
    return {"decoder_kwargs": [stages[0] | changes, *stages[1:]]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantizer_kwargs": {"quantizer_type": "rvq"}}, "quantizer_type is 'rvq'"),
        (with_stage(gating="silu"), "gating is 'silu', only 'none'"),
        (with_stage(norm="rms_norm"), "norm is 'rms_norm', only 'layer_norm'"),
        (with_stage(module_type="Conv"), "module_type is 'Conv'"),
        ({"decoder_kwargs": RELEASED_V1["decoder_kwargs"][:-1]}, "end at 100.0 samples per second"),
        ({"number_channels": 2}, "without enable_channel_interleave"),
        ({"downsample_rate": None}, "no 'downsample_rate'"),
        ({"causal_transformer_context_duration": None}, "no 'causal_transformer_context_duration'"),
    ],
)
def test_refused_settings(changes, message):
    config = RELEASED_V1 | changes
    config = {name: value for name, value in config.items() if value is not None}
    with pytest.raises(CheckpointError, match=message):
        CodecConfig.from_json(config)


def test_refused_clips():
    codec = load_codec(TINY)
    with pytest.raises(ValueError, match=r"wav is \[1, 2, 96\], expected \[B, 1, T\]"):
        codec.encode(torch.zeros(1, 2, 96))
    with pytest.raises(ValueError, match="n_codebooks is 0, the codec has 32"):
        codec.encode(torch.zeros(1, 1, 96), n_codebooks=0)


def test_nothing_in_gives_nothing_out():
    codec = load_codec(TINY)
    codes, lengths = codec.encode(torch.zeros(2, 1, 0))
    assert (codes.shape, lengths.tolist()) == ((32, 2, 0), [0, 0])
    assert codec.decode(codes).shape == (2, 1, 0)
