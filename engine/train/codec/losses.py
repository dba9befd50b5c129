"""How far one sound is from another: spectra at several resolutions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

RESOLUTIONS = ((256, 20), (512, 40), (1024, 80), (2048, 100))  # (FFT size, mel bands)
MAGNITUDE_WEIGHT = 0.5
PHASE_WEIGHT = 0.3
FLOOR = 1e-4


def mel_bands(fft_size: int, bands: int, sample_rate: int) -> Tensor:
    """Triangular filters f32 [bands, fft_size / 2 + 1] on the mel scale 2595 log10(1 + f / 700)."""
    top = 2595 * math.log10(1 + sample_rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2) / 2595) - 1)
    bins = torch.linspace(0, sample_rate / 2, fft_size // 2 + 1)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp_min(0)


class Spectral(nn.Module):
    """Log-mel, magnitude and complex distance of two sounds [B, samples], a scalar."""

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        for size, bands in RESOLUTIONS:
            self.register_buffer(f"window_{size}", torch.hann_window(size), persistent=False)
            filters = mel_bands(size, bands, sample_rate)
            self.register_buffer(f"filters_{size}", filters, persistent=False)

    def forward(self, made: Tensor, wanted: Tensor) -> Tensor:
        """Mean over the resolutions; differentiable in `made`."""
        return torch.stack([self._at(size, made, wanted) for size, _ in RESOLUTIONS]).mean()

    def _at(self, size: int, made: Tensor, wanted: Tensor) -> Tensor:
        window, filters = getattr(self, f"window_{size}"), getattr(self, f"filters_{size}")
        ours, theirs = (
            torch.stft(sound, size, size // 4, window=window, return_complex=True)
            for sound in (made, wanted)
        )
        # The gradient of a magnitude is undefined at zero.
        our_size, their_size = ours.abs().clamp_min(1e-6), theirs.abs()
        log_mel = (_log_mel(filters, our_size) - _log_mel(filters, their_size)).abs().mean()
        level = their_size.mean() + 1e-3
        magnitude = (our_size - their_size).abs().mean() / level
        phase = (ours - theirs).abs().mean() / level
        return log_mel + MAGNITUDE_WEIGHT * magnitude + PHASE_WEIGHT * phase


def _log_mel(filters: Tensor, magnitude: Tensor) -> Tensor:
    return (filters @ magnitude).clamp_min(FLOOR).log()
