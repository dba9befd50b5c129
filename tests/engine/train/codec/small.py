"""A codec of the shipped shape, as small as it gets, and something to learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.train.codec.crops import Crops
from engine.train.codec.run import CodecRecipe
from engine.train.codec.shape import codec_json
from engine.train.corpus.shards import write_shard
from engine.train.corpus.teacher import LABEL_SAMPLES, SAMPLE_RATE, Speech

BOOKS, SIZE = 4, 32
RECIPE = CodecRecipe(codebook_size=SIZE, crops=2, crop_frames=5)


def small_config() -> dict[str, Any]:
    """`config.json` of a codec of one narrow layer everywhere."""
    config = codec_json(BOOKS, SIZE)
    for stack in ("encoder_kwargs", "decoder_kwargs"):
        config[stack] = [
            entry | {"d_model": 64, "num_heads": 1, "num_layers": 1, "dim_feedforward": 64}
            if "d_model" in entry
            else entry
            for entry in config[stack]
        ]
    return config


def noise(seed: int, frames: int = RECIPE.crop_frames, crops: int = RECIPE.crops) -> Crops:
    """Crops of noise with random phonemes."""
    draws = torch.Generator().manual_seed(seed)
    samples = frames * 1920
    return Crops(
        0.1 * torch.randn(crops, 1, samples, generator=draws),
        torch.randint(178, (crops, samples // LABEL_SAMPLES), generator=draws),
    )


def hum(seconds: float, pitch_hz: float) -> Speech:
    """Something that the corpus can hold."""
    samples = int(seconds * SAMPLE_RATE) // LABEL_SAMPLES * LABEL_SAMPLES
    sound = 0.3 * np.sin(2 * np.pi * pitch_hz * np.arange(samples) / SAMPLE_RATE)
    labels = np.arange(samples // LABEL_SAMPLES) // 4 % 40
    return Speech(sound.astype(np.float32), labels.astype(np.uint8), ((0.1, seconds - 0.1),))


def write_corpus(directory: Path) -> None:
    """Two shards of three utterances each."""
    directory.mkdir(parents=True)
    for shard in range(2):
        spoken = [
            (f"Text{shard}{n}", "heart", hum(1.5 + 0.3 * n, 150 + 40 * n + 10 * shard))
            for n in range(3)
        ]
        write_shard(directory, shard, spoken)
