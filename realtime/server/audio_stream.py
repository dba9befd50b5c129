"""The sound of one response on the wire: encoded, numbered and timed without a hole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.api import ModelInfo
from realtime.protocol.frames import AudioFrame, Flags, FrameType, pack_packets
from realtime.protocol.messages import AudioFormat
from realtime.server.audio import OpusEncoder, StreamResampler, to_pcm16
from realtime.server.audio.opus import OPUS_CLOCK_HZ, OPUS_RATES_HZ, PACKETS_PER_S

_ENDS = Flags.LAST_OF_SEGMENT | Flags.LAST_OF_RESPONSE
DEFAULT_OPUS_BITRATE = 32_000


class AudioStream:
    """Turns pieces of sound at the model's rate into audio frames.

    `encode` blocks: call it from a worker thread, one piece after the other.
    """

    def __init__(self, stream: int, audio: AudioFormat, model: ModelInfo) -> None:
        self.dropped = False
        self.samples_given = 0  # at the model's rate
        self._stream = stream
        self._seq = 0
        self._pts = 0
        self._held_flags = Flags.NONE
        self._opus: OpusEncoder | None = None
        self._decoded_samples = 0
        rate_hz = audio.sample_rate
        if audio.codec == "opus":
            rate_hz = model.rate_hz if model.rate_hz in OPUS_RATES_HZ else OPUS_CLOCK_HZ
            bitrate = audio.bitrate or DEFAULT_OPUS_BITRATE
            self._opus = OpusEncoder(rate_hz, model.channels, bitrate)
            self._decoded_samples = -self._opus.pre_skip
        self._resampler = (
            StreamResampler(model.rate_hz, rate_hz, model.channels)
            if rate_hz != model.rate_hz
            else None
        )

    def encode(self, pcm: NDArray[np.float32], flags: Flags, epoch: int) -> AudioFrame | None:
        """Encode f32 `[samples, channels]`; None while the resampler still holds all of it back."""
        last = Flags.LAST_OF_RESPONSE in flags
        self.samples_given += len(pcm)
        if self._resampler:
            settled = [self._resampler.push(pcm)] + ([self._resampler.finish()] if last else [])
            pcm = np.concatenate(settled)
        if self._opus:
            payload, samples = self._encode_opus(self._opus, pcm, last)
            flags, kind = flags | Flags.PACKED, FrameType.OPUS
        else:
            payload, samples, kind = to_pcm16(pcm), len(pcm), FrameType.PCM_S16LE
        flags |= self._held_flags
        if not payload and not flags & _ENDS:
            self._held_flags = flags & (Flags.FIRST | Flags.DISCONTINUITY)
            return None
        frame = AudioFrame(kind, flags, self._stream, self._seq, self._pts, samples, epoch, payload)
        self._seq += 1
        self._pts += samples
        self._held_flags = Flags.NONE
        return frame

    def _encode_opus(
        self, opus: OpusEncoder, pcm: NDArray[np.float32], last: bool
    ) -> tuple[bytes, int]:
        """Return packets and how many samples of the response they complete, 48 kHz clock.

        The decoder is late by the pre-skip, so the first packets complete less than their length
        and the last ones, filled up with silence, exactly the rest.
        """
        packets = opus.encode(pcm)
        if last and opus.samples:
            packets += opus.finish()
        self._decoded_samples += len(packets) * OPUS_CLOCK_HZ // PACKETS_PER_S
        end = opus.samples if last else max(self._pts, self._decoded_samples)
        return pack_packets(packets), end - self._pts
