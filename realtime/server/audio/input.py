"""What a client sends of the user, decoded and brought to the model's rate piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from realtime.protocol.messages import Codec
from realtime.server.audio.level import F32
from realtime.server.audio.opus import OPUS_RATES_HZ, OpusDecoder
from realtime.server.audio.resample import StreamResampler
from realtime.server.audio.samples import decode_samples


class InputDecoder:
    """Decodes one utterance after the other; one channel at `rate_hz` comes out.

    An Opus stream goes on from one utterance to the next, as its encoder does; the resampler begins
    anew.
    """

    def __init__(self, codec: Codec, rate_hz: int, frame_samples: int) -> None:
        """`frame_samples` of the output are a frame of the model."""
        self._codec = codec
        self._rate_hz = rate_hz
        self._frame_samples = frame_samples
        if codec == "opus":
            self._opus_hz = rate_hz if rate_hz in OPUS_RATES_HZ else max(OPUS_RATES_HZ)
            self._opus = OpusDecoder(self._opus_hz)
        self._resampler: StreamResampler | None = None
        self._samples: int | None = None  # of the utterance; None before it begins

    def push(self, packets: Sequence[bytes], source_hz: int) -> tuple[F32, str]:
        """Return f32 `[samples]` that are settled now, and what was wrong with packets left out.

        `source_hz` is the rate of the samples, the same for a whole utterance; Opus has its own.
        """
        if self._samples is None:
            self._begin(self._opus_hz if self._codec == "opus" else source_hz)
        decoded, problem = [np.zeros(0, np.float32)], ""
        for packet in packets:
            try:
                decoded.append(self._decode(packet))
            except ValueError as error:
                problem = str(error)
        return self._resampled(np.concatenate(decoded)), problem

    def finish(self) -> F32:
        """Return the rest of the utterance, filled up with silence to a whole frame."""
        rest = self._resampler.finish()[:, 0] if self._resampler else np.zeros(0, np.float32)
        missing = -((self._samples or 0) + len(rest)) % self._frame_samples
        self._resampler = self._samples = None
        return np.concatenate([rest, np.zeros(missing, np.float32)])

    def _begin(self, source_hz: int) -> None:
        self._samples = 0
        if source_hz != self._rate_hz:
            self._resampler = StreamResampler(source_hz, self._rate_hz, 1)

    def _decode(self, packet: bytes) -> F32:
        if self._codec == "opus":
            return self._opus.decode(packet)
        return decode_samples(self._codec, packet)

    def _resampled(self, pcm: F32) -> F32:
        if self._resampler:
            pcm = self._resampler.push(pcm[:, None])[:, 0]
        self._samples = (self._samples or 0) + len(pcm)
        return pcm
