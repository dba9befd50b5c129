"""The MOSS audio tokenizer: sound to codes and back, 12.5 frames a second, causal both ways.

Whole clips here; `engine.codec.stream` does the same in pieces.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from engine.checkpoint import load_weights, read_json, tensor_names
from engine.codec.attention import WholeSequence
from engine.codec.config import CodecConfig, TransformerConfig
from engine.codec.names import Spelling, canonical
from engine.codec.quantizer import Quantizer
from engine.codec.transformer import Stack


class AudioCodec(nn.Module):
    """Encoder, quantizer and decoder of v1, v2 or Nano: `config` alone says which.

    Tensors have v1's names; `engine.codec.names` knows those of other releases. `weight_norm` and
    `square_projections` say how a checkpoint stores and shapes its projections; `load_codec` finds
    them out.
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
        if lengths.shape != wav.shape[:1] or ((lengths < 0) | (lengths > wav.shape[-1])).any():
            raise ValueError(
                f"lengths are {lengths.tolist()}, expected {len(wav)} of 0..{wav.shape[-1]} samples"
            )
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
        Raises ValueError for codes that are not like that.
        """
        if codes.ndim != 3:
            raise ValueError(f"codes are {list(codes.shape)}, expected [K, B, F]")
        latents = self.latents(codes.permute(1, 2, 0))
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

    def latents(self, codes: Tensor) -> Tensor:
        """What the decoder makes sound of, [B, F, latent_dim], from `codes` i64 [B, F, K].

        Raises ValueError unless there are 1..n_codebooks codebooks and each code is in its own.
        """
        count, books = codes.shape[-1], self.config.n_codebooks
        if not 1 <= count <= books:
            raise ValueError(f"codes are of {count} codebooks, the codec has {books}")
        if codes.dtype == torch.bool or codes.is_floating_point():
            raise ValueError(f"codes are {codes.dtype}, expected whole numbers")
        codes = codes.long()
        self._check_range(codes)
        return self.quantizer.decode(codes.to(self.device)).to(self.dtype)

    def _check_range(self, codes: Tensor) -> None:
        # Unchecked, a negative code would count from the end, and on a GPU one that is too large
        # would end the process.
        size = self.config.codebook_size
        outside = (codes < 0) | (codes >= size)
        if outside.any():
            row, frame, book = outside.nonzero()[0].tolist()
            raise ValueError(
                f"code {codes[row, frame, book]} of codebook {book}, frame {frame}, row {row} is "
                f"not one of 0..{size - 1}"
            )

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
    stored = tensor_names(directory)
    names = {canonical(name) for name in stored}
    with torch.device("meta"):
        codec = AudioCodec(
            config,
            weight_norm=any(".parametrizations." in name for name in names),
            square_projections=_has_square_projections(config, names),
        )
    load_weights(
        codec,
        directory,
        device=device,
        dtype=torch.float32,
        rename=canonical,
        stored_name=Spelling(stored).stored,
    )
    codec.quantizer.prepare()
    codec.encoder.to(dtype or torch.float32)
    codec.decoder.to(dtype or torch.float32)
    return codec.eval()


def _has_square_projections(config: CodecConfig, names: Set[str]) -> bool:
    square = [
        f"{part}.{index}.{end}_proj.weight"
        for part, stages in (("encoder", config.encoder), ("decoder", config.decoder))
        for index, stage in enumerate(stages)
        if isinstance(stage, TransformerConfig)
        for end, width in (("input", stage.input_dim), ("output", stage.output_dim))
        if width == stage.d_model
    ]
    return not names.isdisjoint(square)
