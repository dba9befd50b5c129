"""The one rule from codec output to integer PCM, used by every format and every endpoint."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


def to_pcm16(pcm: F32) -> bytes:
    """Convert f32 `[samples, channels]` (or `[samples]`) to interleaved s16le.

    Clips to [-1, 1], scales by 32767 and rounds half to even, so that full scale is symmetric and
    silence stays exactly silent. A value that is not a number becomes silence.
    """
    scaled: F32 = np.clip(np.nan_to_num(pcm), -1.0, 1.0) * np.float32(32767.0)
    return np.rint(scaled).astype("<i2").tobytes()


def clipped_samples(pcm: F32) -> int:
    """Count the values `to_pcm16` has to clip."""
    return int(np.count_nonzero(np.abs(pcm) > 1.0))
