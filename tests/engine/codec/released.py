"""The `config.json` of each released codec, as far as a loader reads it.

v1's and Nano's are the released ones; v2's stages are the defaults of its public config class.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Stage = dict[str, Any]


def patch(size: int) -> Stage:
    """A stage that reshapes."""
    return {"module_type": "PatchedPretransform", "patch_size": size}


def transformer(input_dim: int, width: int, output_dim: int, layers: int, **more: Any) -> Stage:
    """A stage that computes, of 64 channels a head."""
    return {
        "module_type": "Transformer",
        "input_dimension": input_dim,
        "output_dimension": output_dim,
        "d_model": width,
        "num_heads": width // 64,
        "num_layers": layers,
        "dim_feedforward": 4 * width,
        "causal": True,
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "max_period": 10000,
        "gating": "none",
        "layer_scale": 0.01,
        "conv_layout": True,
        **more,
    }


def mirrored(stages: Iterable[Stage]) -> list[Stage]:
    """The stages that undo `stages`."""
    ends = {"input_dimension": "output_dimension", "output_dimension": "input_dimension"}
    return [{ends.get(key, key): stage[key] for key in stage} for stage in reversed(list(stages))]


def config(encoder: list[Stage], *, n_codebooks: int, **more: Any) -> dict[str, Any]:
    """Return a whole `config.json`; the decoder mirrors the encoder."""
    return {
        "encoder_kwargs": encoder,
        "decoder_kwargs": mirrored(encoder),
        "code_dim": 768,
        "quantizer_type": "rlfq",
        "quantizer_kwargs": {
            "quantizer_type": "rlfq",
            "input_dim": 768,
            "rvq_dim": 512,
            "output_dim": 768,
            "num_quantizers": n_codebooks,
            "codebook_size": 1024,
            "codebook_dim": 8,
        },
        **more,
    }


STEREO = {
    "model_type": "moss-audio-tokenizer",
    "sample_rate": 48000,
    "sampling_rate": 48000,
    "downsample_rate": 3840,
    "causal_transformer_context_duration": 10.0,
    "number_channels": 2,
    "enable_channel_interleave": True,
    "attention_implementation": "sdpa",
    "compute_dtype": "fp32",
}

V1 = config(
    [
        patch(240),
        transformer(240, 768, 384, 12),
        patch(2),
        transformer(768, 768, 384, 12),
        patch(2),
        transformer(768, 768, 640, 12),
        patch(2),
        transformer(1280, 1280, 768, 32),
    ],
    n_codebooks=32,
    model_type="speech_tokenizer",
    sample_rate=24000,
    sampling_rate=24000,
    downsample_rate=1920,
    causal_transformer_context_duration=10,
    number_channels=None,
    version="4.26.1.a",
)

V2 = config(
    [
        patch(240),
        transformer(240, 768, 384, 12, context_duration=1.0),
        patch(2),
        transformer(768, 768, 384, 12, context_duration=2.0),
        patch(2),
        transformer(768, 768, 384, 12, context_duration=4.0),
        patch(2),
        transformer(768, 768, 384, 12, context_duration=8.0),
        patch(2),
        transformer(768, 768, 640, 12, context_duration=10.0),
        patch(2),
        transformer(1280, 1280, 768, 32, context_duration=10.0),
    ],
    n_codebooks=32,
    **STEREO,
)

NANO = config(
    [
        patch(240),
        transformer(240, 256, 384, 4, context_duration=4.0),
        patch(2),
        transformer(768, 256, 384, 2, context_duration=6.0),
        patch(2),
        transformer(768, 256, 384, 2, context_duration=8.0),
        patch(2),
        transformer(768, 256, 192, 4, context_duration=10.0),
        patch(4),
    ],
    n_codebooks=16,
    **STEREO,
)

RELEASED = {"v1": V1, "v2": V2, "nano": NANO}
