"""The released codecs at full size, without weights: shapes, rates, and settings we refuse."""

import json
from pathlib import Path

import pytest
import torch

from engine.checkpoint import CheckpointError
from engine.codec.codec import AudioCodec
from engine.codec.config import CodecConfig, TransformerConfig
from engine.codec.names import Spelling, canonical
from tests.engine.codec.released import RELEASED, V1, mirrored

VECTORS = Path(__file__).parents[2] / "vectors"


def manifest_of(release):
    return json.loads((VECTORS / f"manifest_codec_{release}.json").read_text())


@pytest.mark.parametrize("release", RELEASED)
def test_full_size_has_exactly_the_released_tensors(release):
    manifest = manifest_of(release)
    config = CodecConfig.from_json(RELEASED[release])
    with torch.device("meta"):
        codec = AudioCodec(config, square_projections=release == "v2")
    spelling = Spelling(manifest["tensors"].keys())
    tensors = {spelling.stored(name): tensor for name, tensor in codec.state_dict().items()}
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == manifest["tensors"]
    assert {canonical(name) for name in manifest["tensors"]} == codec.state_dict().keys()
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert len(tensors) == manifest["_num_tensors"]
    for part, elements in manifest["_elements_by_part"].items():
        assert sum(t.numel() for name, t in tensors.items() if name.startswith(part)) == elements


@pytest.mark.parametrize(
    ("release", "sound", "tokens_per_frame"),
    [
        ("v1", (24_000, 1, 1920), [1, 2, 4, 8]),
        ("v2", (48_000, 2, 3840), [1, 2, 4, 8, 16, 32]),
        ("nano", (48_000, 2, 3840), [4, 8, 16, 32]),
    ],
)
def test_full_size_rates_and_windows(release, sound, tokens_per_frame):
    config = CodecConfig.from_json(RELEASED[release])
    assert (config.sample_rate, config.channels, config.samples_per_frame) == sound
    assert config.frame_rate == 12.5
    contexts = manifest_of(release)["_contexts"]
    for stages, part in ((config.encoder, "encoder"), (config.decoder, "decoder")):
        transformers = {
            index: stage
            for index, stage in enumerate(stages)
            if isinstance(stage, TransformerConfig)
        }
        windows = [[index, stage.window_tokens] for index, stage in transformers.items()]
        assert windows == contexts[part]
        rates = [stage.tokens_per_frame for stage in transformers.values()]
        assert rates == tokens_per_frame[:: -1 if part == "encoder" else 1]


@pytest.mark.parametrize("release", RELEASED)
def test_a_decoder_that_is_only_given_as_its_mirror_image(release):
    config = dict(RELEASED[release])
    config["reversed_decoder_kwargs"] = mirrored(config.pop("decoder_kwargs"))
    assert CodecConfig.from_json(config) == CodecConfig.from_json(RELEASED[release])


def with_stage(**changes):
    stages = V1["decoder_kwargs"]
    return {"decoder_kwargs": [stages[0] | changes, *stages[1:]]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantizer_kwargs": {"quantizer_type": "rvq"}}, "quantizer_type is 'rvq'"),
        (with_stage(gating="silu"), "gating is 'silu', only 'none'"),
        (with_stage(norm="rms_norm"), "norm is 'rms_norm', only 'layer_norm'"),
        (with_stage(module_type="Conv"), "module_type is 'Conv'"),
        ({"decoder_kwargs": V1["decoder_kwargs"][:-1]}, "end at 100.0 samples per second"),
        ({"number_channels": 2}, "without enable_channel_interleave"),
        ({"downsample_rate": None}, "no 'downsample_rate'"),
        ({"causal_transformer_context_duration": None}, "no 'causal_transformer_context_duration'"),
    ],
)
def test_refused_settings(changes, message):
    config = V1 | changes
    config = {name: value for name, value in config.items() if value is not None}
    with pytest.raises(CheckpointError, match=message):
        CodecConfig.from_json(config)
