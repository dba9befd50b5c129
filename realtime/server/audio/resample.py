"""Resampling of a stream whose result does not depend on how it was cut."""

from __future__ import annotations

import numpy as np
import soxr

from realtime.server.audio.level import F32


class StreamResampler:
    """Resample f32 `[samples, channels]` piece by piece.

    The filter holds back a few milliseconds; `finish` returns them, and the whole output then has
    the input's length times `to_hz / from_hz`, rounded.
    """

    def __init__(self, from_hz: int, to_hz: int, channels: int) -> None:
        self._channels = channels
        self._stream = soxr.ResampleStream(from_hz, to_hz, channels, dtype="float32", quality="HQ")

    def push(self, pcm: F32) -> F32:
        """Add a piece; return the samples that are settled now."""
        return self._resample(pcm, last=False)

    def finish(self) -> F32:
        """Return the rest."""
        return self._resample(np.empty((0, self._channels), np.float32), last=True)

    def _resample(self, pcm: F32, *, last: bool) -> F32:
        flat = pcm[:, 0] if self._channels == 1 else pcm
        out: F32 = self._stream.resample_chunk(flat, last=last)
        return out.reshape(-1, self._channels)
