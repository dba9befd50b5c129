"""The shape of the shipped codec, and a codec of it that can be trained, saved and loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.codec.codec import AudioCodec, load_codec
from engine.codec.config import CodecConfig
from engine.codec.quantizer import Projection
from engine.codec.transformer import LayerScale
from engine.train.codec.quantizing import make_trainable
from engine.train.files import written_whole

LAYER_SCALE = 0.2  # what a layer adds at the start
WINDOW_S = 1.28


def _transformer(input_dim: int, output_dim: int, width: int, layers: int) -> dict[str, Any]:
    return {
        "module_type": "Transformer",
        "input_dimension": input_dim,
        "output_dimension": output_dim,
        "d_model": width,
        "num_heads": width // 64,
        "num_layers": layers,
        "dim_feedforward": 4 * width,
        "causal": True,
        "conv_layout": True,
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "max_period": 10000,
        "gating": "none",
        "layer_scale": 0.01,
    }


def _patch(size: int) -> dict[str, Any]:
    return {"module_type": "PatchedPretransform", "patch_size": size}


def codec_json(codebooks: int, codebook_size: int) -> dict[str, Any]:
    """`config.json` of a 14 M codec: 24 kHz, 100 Hz patches, three halvings to 12.5 frames/s."""
    return {
        "architectures": ["MossAudioTokenizerModel"],
        "model_type": "speech_tokenizer",
        "sampling_rate": 24000,
        "sample_rate": 24000,
        "downsample_rate": 1920,
        "causal_transformer_context_duration": WINDOW_S,
        "code_dim": 256,
        "dtype": "bfloat16",
        "encoder_kwargs": [
            *(_patch(240), _transformer(240, 128, 192, 2)),
            *(_patch(2), _transformer(256, 128, 192, 2)),
            *(_patch(2), _transformer(256, 128, 256, 2)),
            *(_patch(2), _transformer(256, 256, 256, 3)),
        ],
        "decoder_kwargs": [
            *(_transformer(256, 256, 256, 4), _patch(2)),
            *(_transformer(128, 256, 256, 2), _patch(2)),
            *(_transformer(128, 256, 192, 3), _patch(2)),
            *(_transformer(128, 240, 192, 4), _patch(240)),
        ],
        "quantizer_type": "rlfq",
        "quantizer_kwargs": {
            "quantizer_type": "rlfq",
            "input_dim": 256,
            "rvq_dim": 128,
            "output_dim": 256,
            "num_quantizers": codebooks,
            "codebook_size": codebook_size,
            "codebook_dim": 8,
        },
    }


def new_codec(config: dict[str, Any]) -> AudioCodec:
    """A codec of random weights, ready to train."""
    codec = AudioCodec(CodecConfig.from_json(config), weight_norm=False)
    for module in codec.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, LayerScale):
            nn.init.constant_(module.scale, LAYER_SCALE)
        elif isinstance(module, Projection):
            nn.init.trunc_normal_(module.weight, std=module.weight.shape[1] ** -0.5)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
    make_trainable(codec.quantizer)
    return codec.requires_grad_(True)


def continued_codec(directory: Path, config: dict[str, Any]) -> AudioCodec:
    """A codec that starts from a checkpoint, of which it keeps the first codebooks."""
    old = load_codec(directory)
    codec = new_codec(config)
    wanted = codec.state_dict()
    codec.load_state_dict({name: old.state_dict()[name] for name in wanted})
    return codec


def save_codec(codec: AudioCodec, config: dict[str, Any], directory: Path) -> None:
    """Write a released-format checkpoint in bfloat16, projections as length and direction."""
    state: dict[str, Tensor] = {}
    for name, tensor in codec.state_dict().items():
        stem, _, kind = name.rpartition(".")
        if kind == "weight" and isinstance(codec.get_submodule(stem), Projection):
            length = tensor.float().norm(dim=1)[:, None, None]
            state[f"{stem}.parametrizations.weight.original0"] = length
            state[f"{stem}.parametrizations.weight.original1"] = tensor[..., None]
        else:
            state[name] = tensor
    half = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in state.items()}
    directory.mkdir(parents=True, exist_ok=True)
    with written_whole(directory / "model.safetensors") as partial:
        save_file(half, partial, metadata={"format": "pt"})
    with written_whole(directory / "config.json") as partial:
        partial.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
