"""Which phonemes are being said: read from codes, and heard in sound."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, layer_norm

from engine.train.codec.losses import mel_bands
from engine.train.corpus.teacher import LABEL_SAMPLES, PHONEMES

FFT_SIZE, MEL_BANDS = 1024, 80
WIDTH = 160


class CodeReader(nn.Module):
    """Reads the phonemes of a frame from what its first codes stand for, one frame at a time.

    A codec trained to please it puts the words into its first codes.
    """

    def __init__(self, width: int, labels_per_frame: int) -> None:
        super().__init__()
        self._labels = labels_per_frame
        self.layers = nn.Sequential(
            nn.Linear(width, 512), nn.GELU(), nn.Linear(512, labels_per_frame * PHONEMES)
        )

    def forward(self, entries: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of `labels` i64 [B, F * n] given `entries` [B, F, width], a scalar."""
        logits = self.layers(layer_norm(entries, entries.shape[-1:]))
        return cross_entropy(logits.reshape(-1, PHONEMES).float(), labels.reshape(-1))


class Listener(nn.Module):
    """Hears which phoneme is said every 12.5 ms; trained on real sound, asked about decoded sound.

    Spectra alone weigh a vowel's buzz as much as what tells one consonant from another.
    """

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(FFT_SIZE), persistent=False)
        filters = mel_bands(FFT_SIZE, MEL_BANDS, sample_rate)
        self.register_buffer("filters", filters, persistent=False)
        self.layers = nn.ModuleList(
            nn.Conv1d(inputs, WIDTH, 5, padding=2) for inputs in (MEL_BANDS, WIDTH, WIDTH)
        )
        self.head = nn.Conv1d(WIDTH, PHONEMES, 1)

    def forward(self, sound: Tensor) -> tuple[list[Tensor], Tensor]:
        """Features of each layer, logits [B, phonemes, samples / 300] of `sound` [B, samples]."""
        spectrum = torch.stft(
            sound, FFT_SIZE, LABEL_SAMPLES, window=self.window, return_complex=True
        )
        mel = self.filters @ spectrum.abs().clamp_min(1e-6)
        # Loudness says nothing about the words.
        x = mel.clamp_min(1e-3).log()
        x = (x - x.mean((1, 2), keepdim=True))[..., : sound.shape[-1] // LABEL_SAMPLES]
        features = []
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
            features.append(x)
        return features, self.head(x)

    def hears(self, sound: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of what is said in `sound`: to train the listener itself."""
        return cross_entropy(self(sound)[1], labels)

    def judges(self, made: Tensor, wanted: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """How unclear decoded sound is, and how far its features are from the original's."""
        with torch.no_grad():
            originals, _ = self(wanted)
        features, logits = self(made)
        distance = torch.stack(
            [(a - b).abs().mean() for a, b in zip(features, originals, strict=True)]
        ).mean()
        return cross_entropy(logits, labels), distance
