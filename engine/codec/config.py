"""Shape of a codec, read from the `config.json` of a checkpoint in the released format."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from engine.hub import CheckpointError

_FIXED = {
    "causal": True,
    "norm": "layer_norm",
    "positional_embedding": "rope",
    "gating": "none",
}
"""What every released transformer stage has; a stage that says otherwise is refused."""


@dataclasses.dataclass(frozen=True, slots=True)
class PatchConfig:
    """A reshaping between neighbouring steps and channels, by a factor of `size`."""

    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransformerConfig:
    """A causal transformer whose tokens see `window_tokens` tokens, themselves included."""

    input_dim: int
    output_dim: int
    d_model: int
    heads: int
    layers: int
    ff_dim: int
    max_period: float
    window_tokens: int
    tokens_per_frame: int

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.d_model // self.heads


StageConfig = PatchConfig | TransformerConfig


@dataclasses.dataclass(frozen=True, slots=True)
class CodecConfig:
    """All numbers of one codec. `sample_rate` is in Hz, for each channel."""

    sample_rate: int
    channels: int
    samples_per_frame: int
    n_codebooks: int
    codebook_size: int
    codebook_dim: int
    latent_dim: int
    rvq_dim: int
    encoder: tuple[StageConfig, ...]
    decoder: tuple[StageConfig, ...]

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.samples_per_frame

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> CodecConfig:
        """Read a released `config.json`. Raises `CheckpointError` for what this codec cannot be."""
        try:
            return _read(config)
        except KeyError as error:
            raise CheckpointError(f"the codec's config.json has no {error}") from error


def _read(config: Mapping[str, Any]) -> CodecConfig:
    quantizer = config["quantizer_kwargs"]
    kind = quantizer.get("quantizer_type", config.get("quantizer_type"))
    if kind != "rlfq":
        raise CheckpointError(f"quantizer_type is {kind!r}, only 'rlfq' is supported")
    if quantizer["input_dim"] != quantizer["output_dim"]:
        raise CheckpointError("the quantizer's input_dim and output_dim differ")
    stages = _StageReader(config)
    codec = CodecConfig(
        sample_rate=int(config.get("sampling_rate") or config["sample_rate"]),
        channels=stages.channels,
        samples_per_frame=int(config["downsample_rate"]),
        n_codebooks=quantizer["num_quantizers"],
        codebook_size=quantizer["codebook_size"],
        codebook_dim=quantizer["codebook_dim"],
        latent_dim=quantizer["input_dim"],
        rvq_dim=quantizer["rvq_dim"],
        encoder=stages.read(config["encoder_kwargs"], down=True),
        decoder=stages.read(_decoder_stages(config), down=False),
    )
    if stages.rate != codec.sample_rate * codec.channels:
        raise CheckpointError(
            f"the decoder's stages end at {stages.rate} samples per second, "
            f"expected {codec.sample_rate * codec.channels}"
        )
    return codec


def _decoder_stages(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The decoder's stages; where a config has only their mirror image, that one turned round."""
    if "decoder_kwargs" in config or "reversed_decoder_kwargs" not in config:
        return list(config["decoder_kwargs"])
    ends = {"input_dimension": "output_dimension", "output_dimension": "input_dimension"}
    return [
        {ends.get(field, field): value for field, value in stage.items()}
        for stage in reversed(config["reversed_decoder_kwargs"])
    ]


class _StageReader:
    """Follows the token rate through the stages; windows are seconds of it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.channels = int(config.get("number_channels") or config.get("channels_numbers") or 1)
        if self.channels > 1 and not config.get("enable_channel_interleave"):
            raise CheckpointError("several channels without enable_channel_interleave")
        self._context_s = config.get("causal_transformer_context_duration")
        sample_rate = int(config.get("sampling_rate") or config["sample_rate"])
        self._frame_rate = sample_rate / int(config["downsample_rate"])
        self.rate = float(sample_rate * self.channels)

    def read(self, stages: Iterable[Mapping[str, Any]], *, down: bool) -> tuple[StageConfig, ...]:
        return tuple(self._stage(stage, down) for stage in stages)

    def _stage(self, stage: Mapping[str, Any], down: bool) -> StageConfig:
        kind = stage["module_type"]
        if kind == "PatchedPretransform":
            size = int(stage["patch_size"])
            self.rate = self.rate / size if down else self.rate * size
            return PatchConfig(size)
        if kind != "Transformer":
            raise CheckpointError(
                f"module_type is {kind!r}, not PatchedPretransform or Transformer"
            )
        for field, expected in _FIXED.items():
            if stage.get(field, expected) != expected:
                raise CheckpointError(
                    f"{field} is {stage[field]!r}, only {expected!r} is supported"
                )
        context_s = stage.get("context_duration", self._context_s)
        if context_s is None:
            raise KeyError("causal_transformer_context_duration")
        return TransformerConfig(
            input_dim=stage["input_dimension"],
            output_dim=stage["output_dimension"],
            d_model=stage["d_model"],
            heads=stage["num_heads"],
            layers=stage["num_layers"],
            ff_dim=stage["dim_feedforward"],
            max_period=stage.get("max_period", 10_000),
            window_tokens=round(self.rate * context_s),
            tokens_per_frame=round(self.rate / self._frame_rate),
        )
