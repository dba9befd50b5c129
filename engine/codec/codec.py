"""The MOSS audio tokenizer: sound to codes and back, 12.5 frames a second, causal both ways.

Whole clips here; `engine.codec.stream` does the same in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from engine.checkpoint import load_weights, read_json, tensor_names
from engine.codec.attention import WholeSequence
from engine.codec.config import CodecConfig, TransformerConfig
from engine.codec.quantizer import Quantizer
from engine.codec.transformer import Stack


class AudioCodec(nn.Module):
    """Encoder, quantizer and decoder, with the tensor names of the released v1 checkpoints.

    `weight_norm` and `square_projections` say how a checkpoint stores and shapes its projections;
    `load_codec` finds them out.
    """

    def __init__(
        self, config: CodecConfig, *, weight_norm: bool = True, square_projections: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder = Stack(config.encoder, down=True, square_projections=square_projections)
        self.quantizer = Quantizer(config, weight_norm=weight_norm)
        self.decoder = Stack(config.decoder, down=False, square_projections=square_projections)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.quantizer.output_proj.bias.device

    @property
    def dtype(self) -> torch.dtype:
        """What encoder and decoder compute in; the quantizer is always float32."""
        return next(self.decoder.parameters()).dtype

    @torch.inference_mode()
    def encode(
        self, wav: Tensor, lengths: Tensor | None = None, n_codebooks: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode clips, zero-padded to one length.

        `wav` f32 [B, channels, T]; `lengths` i64 [B] in samples (None: all are T). Returns codes
        i64 [n_codebooks, B, F] with F = ceil(T / samples_per_frame), and i64 [B] how many frames of
        each count: whole ones only. Pad a clip to whole frames to keep its tail.
        """
        n_codebooks = self.codebooks(n_codebooks)
        if wav.ndim != 3 or wav.shape[1] != self.config.channels:
            raise ValueError(f"wav is {list(wav.shape)}, expected [B, {self.config.channels}, T]")
        per_frame = self.config.samples_per_frame
        if lengths is None:
            lengths = torch.full((len(wav),), wav.shape[-1])
        lengths = lengths.to(self.device).long() // per_frame
        wav = pad(wav.to(self.device), (0, -wav.shape[-1] % per_frame))
        frames = wav.shape[-1] // per_frame
        attentions = [
            WholeSequence(config, frames * config.tokens_per_frame, self.device)
            for config in self.encoder.transformers
        ]
        latents = self.encoder(self.interleave(wav), attentions).float()
        valid = torch.arange(frames, device=self.device) < lengths[:, None]
        codes = self.quantizer.encode(latents, n_codebooks, valid)
        return codes.permute(2, 0, 1), lengths

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """Decode `codes` i64 [K, B, F] of the first K codebooks, each 0..codebook_size - 1.

        Returns f32 [B, channels, F * samples_per_frame], nominally in [-1, 1] but not clipped.
        """
        latents = self.quantizer.decode(codes.to(self.device).permute(1, 2, 0)).to(self.dtype)
        attentions = [
            WholeSequence(config, codes.shape[-1] * config.tokens_per_frame, self.device)
            for config in self.decoder.transformers
        ]
        return self.split_channels(self.decoder(latents, attentions)).transpose(1, 2)

    def codebooks(self, wanted: int | None) -> int:
        """How many codebooks a caller means: `wanted`, or all of them for None."""
        if wanted is None:
            return self.config.n_codebooks
        if not 1 <= wanted <= self.config.n_codebooks:
            raise ValueError(f"n_codebooks is {wanted}, the codec has {self.config.n_codebooks}")
        return wanted

    def interleave(self, wav: Tensor) -> Tensor:
        """Samples [B, channels, T] as the encoder's one stream [B, T * channels, 1]: L, R, L, R."""
        return wav.transpose(1, 2).reshape(len(wav), -1, 1).to(self.dtype)

    def split_channels(self, stream: Tensor) -> Tensor:
        """The decoder's stream [B, T * channels, 1] as samples f32 [B, T, channels]."""
        return stream.reshape(len(stream), -1, self.config.channels).float()


def load_codec(
    directory: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
) -> AudioCodec:
    """Load a codec checkpoint in the released format.

    `dtype` is what encoder and decoder compute in (None: float32); the quantizer stays float32.
    Raises `CheckpointError` naming what the checkpoint lacks or has too much.
    """
    config = CodecConfig.from_json(read_json(directory, "config.json"))
    names = {_canonical(name) for name in tensor_names(directory)}
    with torch.device("meta"):
        codec = AudioCodec(
            config,
            weight_norm=any(".parametrizations." in name for name in names),
            square_projections=_has_square_projections(config, names),
        )
    load_weights(codec, directory, device=device, dtype=torch.float32, rename=_canonical)
    codec.quantizer.prepare()
    codec.encoder.to(dtype or torch.float32)
    codec.decoder.to(dtype or torch.float32)
    return codec.eval()


_ALIASES = (
    (r"\.self_attn\.in_proj(\.weight|_weight)$", r".self_attn.in_projs.0.weight"),
    (r"\.self_attn\.out_proj\.weight$", r".self_attn.out_projs.0.weight"),
    (r"\.ffn\.0\.weight$", r".linear1.weight"),
    (r"\.ffn\.2\.weight$", r".linear2.weight"),
    (r"\.weight_g$", r".parametrizations.weight.original0"),
    (r"\.weight_v$", r".parametrizations.weight.original1"),
)
"""Spellings of other releases and of older torch, and ours."""


def _canonical(name: str) -> str:
    for pattern, replacement in _ALIASES:
        name = re.sub(pattern, replacement, name)
    return name


def _has_square_projections(config: CodecConfig, names: Set[str]) -> bool:
    square = [
        f"decoder.{index}.{end}_proj.weight"
        for index, stage in enumerate(config.decoder)
        if isinstance(stage, TransformerConfig)
        for end, width in (("input", stage.input_dim), ("output", stage.output_dim))
        if width == stage.d_model
    ]
    return not names.isdisjoint(square)
