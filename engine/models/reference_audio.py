"""What a recording goes through before it is encoded as a reference, at the codec's rate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32Samples = NDArray[np.float32]
"""[channels, samples], full scale is 1."""

_TARGET_DB = -20.0
_MOST_GAIN_DB = 3.0
_SILENCE = 1e-9


def local_reference(samples: F32Samples) -> F32Samples:
    """For MOSS-TTS-Local-Transformer: two channels, brought up to 3 dB nearer to -20 dBFS.

    Mono is doubled; of more channels the first two count. The level is that of all samples of both
    channels together.
    """
    stereo = _stereo(samples[:2])
    level_db = 10 * np.log10(np.mean(np.square(stereo, dtype=np.float64)) + _SILENCE)
    gain_db = np.clip(_TARGET_DB - level_db, -_MOST_GAIN_DB, _MOST_GAIN_DB)
    return (stereo * np.float32(10 ** (gain_db / 20))).astype(np.float32)


def nano_reference(samples: F32Samples) -> F32Samples:
    """For MOSS-TTS-Nano: two channels, at the level they have.

    Raises `ValueError` for more than two.
    """
    if len(samples) > 2:
        raise ValueError(f"a reference has one or two channels; this one has {len(samples)}")
    return _stereo(samples)


def _stereo(samples: F32Samples) -> F32Samples:
    if samples.ndim != 2 or not samples.size:
        raise ValueError(f"expected samples [channels, samples]; got {list(samples.shape)}")
    return np.repeat(samples, 2, axis=0) if len(samples) == 1 else samples
