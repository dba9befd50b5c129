"""The sound of one response on the wire: encoded, numbered and timed without a hole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.api import ModelInfo
from realtime.protocol.frames import (
    FRAME_TYPES,
    OPUS_CLOCK_HZ,
    SAMPLE_BYTES,
    AudioFrame,
    Flags,
    pack_packets,
)
from realtime.protocol.messages import AudioFormat
from realtime.server.audio import OpusEncoder, StreamResampler
from realtime.server.audio.opus import OPUS_RATES_HZ, PACKETS_PER_S
from realtime.server.audio.samples import encode_samples
from realtime.session.formats import OPUS_BITRATE

_ENDS = Flags.LAST_OF_SEGMENT | Flags.LAST_OF_RESPONSE


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
        self._codec = audio.codec
        rate_hz = audio.sample_rate
        if audio.codec == "opus":
            rate_hz = opus_input_hz(audio, model)
            bitrate = audio.bitrate or OPUS_BITRATE
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
        if self._codec == "opus":
            payload, samples = self._encode_opus(pcm, last)
            flags |= Flags.PACKED
        else:
            payload, samples = encode_samples(self._codec, pcm), len(pcm)
        flags |= self._held_flags
        if not payload and not flags & _ENDS:
            self._held_flags = flags & (Flags.FIRST | Flags.DISCONTINUITY)
            return None
        kind = FRAME_TYPES[self._codec]
        frame = AudioFrame(kind, flags, self._stream, self._seq, self._pts, samples, epoch, payload)
        self._seq += 1
        self._pts += samples
        self._held_flags = Flags.NONE
        return frame

    def _encode_opus(self, pcm: NDArray[np.float32], last: bool) -> tuple[bytes, int]:
        """Return packets and how many samples of the response they complete, 48 kHz clock.

        The decoder is late by the pre-skip, so the first packets complete less than their length
        and the last ones, filled up with silence, exactly the rest.
        """
        opus = self._opus
        assert opus
        packets = opus.encode(pcm)
        if last and opus.samples:
            packets += opus.finish()
        self._decoded_samples += len(packets) * OPUS_CLOCK_HZ // PACKETS_PER_S
        end = opus.samples if last else max(self._pts, self._decoded_samples)
        return pack_packets(packets), end - self._pts


def opus_input_hz(audio: AudioFormat, model: ModelInfo) -> int:
    """Return the rate an Opus encoder is fed at: no higher than there is sound to encode."""
    fits = model.rate_hz in OPUS_RATES_HZ and model.rate_hz <= audio.sample_rate
    return model.rate_hz if fits else audio.sample_rate


def bytes_per_s(audio: AudioFormat) -> int:
    """Return how many bytes a second of sound has on the wire, headers aside."""
    if audio.codec == "opus":
        return (audio.bitrate or OPUS_BITRATE) // 8
    return audio.sample_rate * audio.channels * SAMPLE_BYTES[audio.codec]
