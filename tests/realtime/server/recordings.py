"""Reference recordings for tests."""

from __future__ import annotations

import io

import numpy as np
import soundfile
from numpy.typing import NDArray


def tone(
    seconds: float, rate_hz: int = 24_000, channels: int = 1, hz: float = 440
) -> NDArray[np.float32]:
    """Sound f32 `[samples, channels]` of level 0.3."""
    t = np.arange(int(seconds * rate_hz)) / rate_hz
    mono = (0.3 * np.sin(2 * np.pi * hz * t)).astype(np.float32)
    return np.repeat(mono[:, None], channels, axis=1)


def packed(pcm: NDArray[np.float32], rate_hz: int = 24_000, **options: str) -> bytes:
    """`pcm` as a file, WAV unless `options` of soundfile say otherwise."""
    file = io.BytesIO()
    soundfile.write(file, pcm, rate_hz, **({"format": "WAV"} | options))
    return file.getvalue()
