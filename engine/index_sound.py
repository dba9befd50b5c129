"""Sound that says which sample it is, so that a lost, repeated or reordered one shows.

Two encodings of sample index n (counted from the first sample of a response):

* `ramp`: value (n mod 65535 - 32767) / 32767. Every int16 sample is its own index, modulo 65535.
  Exact in any lossless format (pcm, wav, flac); meaningless after a lossy one.
* `chirp`: 0.5 sin(2 pi (300 t + 150 t^2)) with t = (n / rate) mod 10 s, a sweep from 300 to 3300 Hz
  whose instantaneous frequency 300 + 300 t tells the time. It is the same function of time at any
  rate, survives Opus, MP3 and resampling, and in a lossless format can also be compared sample by
  sample. In JavaScript:
  `const t = (n / rate) % 10; return 0.5 * Math.sin(2 * Math.PI * (300 * t + 150 * t * t));`
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RAMP_PERIOD = 65535  # samples
CHIRP_PERIOD_S = 10


def ramp(first: int, count: int) -> NDArray[np.float32]:
    """Samples f32 `[count]` from index `first` on."""
    index = np.arange(first, first + count) % RAMP_PERIOD
    return ((index - 32767) / 32767).astype(np.float32)


def read_ramp(pcm: NDArray[np.int16]) -> NDArray[np.int64]:
    """Index of every int16 sample of a `ramp`, modulo 65535."""
    return pcm.astype(np.int64) + 32767


def chirp(first: int, count: int, rate_hz: int) -> NDArray[np.float32]:
    """Samples f32 `[count]` from index `first` on, at `rate_hz`."""
    t = np.arange(first, first + count) % (CHIRP_PERIOD_S * rate_hz) / rate_hz
    return (0.5 * np.sin(2 * np.pi * (300 * t + 150 * t * t))).astype(np.float32)


def locate_chirp(pcm: NDArray[np.float32], rate_hz: int) -> int:
    """Index of the first sample of a stretch f32 `[samples]` of `chirp`, modulo 10 s.

    The maximum of its cross-correlation with one period: exact for clean sound; after a lossy codec
    an 80 ms stretch may be off by a cycle (3 ms), a second of it by a sample or two.
    """
    period = CHIRP_PERIOD_S * rate_hz
    whole = np.fft.rfft(chirp(0, period, rate_hz))
    part = np.fft.rfft(pcm[:period], period)
    return int(np.argmax(np.fft.irfft(whole * part.conj(), period)))
