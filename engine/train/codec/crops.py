"""Training material of the codec: random crops of a corpus with the phonemes said in them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.train.corpus.shards import FULL_SCALE, shard_indices
from engine.train.corpus.teacher import LABEL_SAMPLES

GAIN_DB = (-8.0, 2.0)
NOISE = 2e-4  # keeps silence from being digital zero


@dataclasses.dataclass(frozen=True, slots=True)
class Crops:
    """`sound` f32 [B, 1, samples]; `labels` i64 [B, samples / 300], a phoneme each 12.5 ms."""

    sound: Tensor
    labels: Tensor


class CropSource:
    """Draws crops from all shards; the same crops for the same seed and number of the draw."""

    def __init__(self, corpus: Path, samples: int, seed: int) -> None:
        self._shards = [
            (
                np.load(corpus / f"{index:05d}.sound.npy", mmap_mode="r"),
                np.load(corpus / f"{index:05d}.labels.npy"),
            )
            for index in shard_indices(corpus)
        ]
        if not self._shards:
            raise ValueError(f"{corpus} has no complete shard: build the corpus first")
        if samples % LABEL_SAMPLES:
            raise ValueError(f"crops of {samples} samples: must be a multiple of {LABEL_SAMPLES}")
        self._samples = samples
        self._seed = seed

    def draw(self, number: int, count: int) -> Crops:
        """`count` crops for step `number`."""
        draws = np.random.default_rng((self._seed, number))
        sounds, labels = [], []
        for _ in range(count):
            sound, phonemes = self._shards[draws.integers(len(self._shards))]
            start = int(draws.integers((len(sound) - self._samples) // LABEL_SAMPLES))
            crop = sound[start * LABEL_SAMPLES :][: self._samples].astype(np.float32) / FULL_SCALE
            gain = 10 ** (draws.uniform(*GAIN_DB) / 20)
            noise = draws.standard_normal(self._samples, np.float32) * NOISE
            sounds.append(crop * np.float32(gain) + noise)
            labels.append(phonemes[start:][: self._samples // LABEL_SAMPLES].astype(np.int64))
        return Crops(
            torch.from_numpy(np.stack(sounds))[:, None], torch.from_numpy(np.stack(labels))
        )
