"""Opus packets of 20 ms with exact timing at both ends."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np

from realtime.protocol.frames import OPUS_CLOCK_HZ
from realtime.server.audio.level import F32, to_pcm16

OPUS_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
PACKETS_PER_S = 50
MAX_PACKET_MS = 120


class OpusUnavailable(RuntimeError):
    """The system has no libopus; the message names the command that installs it."""


@functools.cache
def load_opuslib() -> Any:
    """Import opuslib, which looks for libopus while it is imported.

    Raises `OpusUnavailable` when the library is missing.
    """
    # opuslib 3.0.1 compares an int with `is not`, which warns whenever it is compiled.
    warnings.filterwarnings("ignore", '"is not" with ', SyntaxWarning, r".*\bopuslib\b")
    try:
        import opuslib
    except Exception as error:  # opuslib raises a bare Exception
        raise OpusUnavailable(
            f"Opus needs the system library libopus ({error}); "
            "install it with `apt install libopus0`, or choose another format"
        ) from error
    return opuslib


class OpusDecoder:
    """One continuous Opus stream, decoded to one channel at `rate_hz`."""

    def __init__(self, rate_hz: int) -> None:
        """Raises `ValueError` for a rate that Opus cannot give."""
        if rate_hz not in OPUS_RATES_HZ:
            raise ValueError(f"Opus gives {OPUS_RATES_HZ} Hz, not {rate_hz}: resample afterwards")
        self._opuslib = load_opuslib()
        self._decoder = self._opuslib.Decoder(rate_hz, 1)
        self._most_samples = rate_hz * MAX_PACKET_MS // 1000

    def decode(self, packet: bytes) -> F32:
        """Return the packet's sound f32 `[samples]`. Raises `ValueError` for what is no packet."""
        try:
            pcm16 = self._decoder.decode(packet, self._most_samples)
        except self._opuslib.OpusError:
            raise ValueError(
                f"an Opus packet of {len(packet)} bytes that starts with {packet[:4].hex()} is "
                "corrupt, and was left out"
            ) from None
        return np.frombuffer(pcm16, np.int16).astype(np.float32) / np.float32(32768.0)


class OpusEncoder:
    """One continuous Opus stream, fed in pieces of any length.

    The decoder's output is late by the encoder's lookahead: a player drops the first `pre_skip`
    samples of the stream (48 kHz clock) and, as the last packet is filled up with silence, plays
    `samples` samples from there. `finish` returns the packets that hold the last `pre_skip`
    samples, without which the end would be lost.
    """

    def __init__(self, rate_hz: int, channels: int = 1, bitrate: int = 32_000) -> None:
        """`bitrate` is in bits per second. Raises `ValueError` for a rate that Opus cannot take."""
        if rate_hz not in OPUS_RATES_HZ:
            raise ValueError(f"Opus takes {OPUS_RATES_HZ} Hz, not {rate_hz}: resample first")
        self._encoder = load_opuslib().Encoder(rate_hz, channels, "audio")
        self._encoder.bitrate = bitrate
        self._sample_bytes = 2 * channels
        self._packet_samples = rate_hz // PACKETS_PER_S
        self._lookahead_samples: int = self._encoder.lookahead
        self._clock_ratio = OPUS_CLOCK_HZ // rate_hz
        self._pending = bytearray()
        self._samples = 0
        self._packets = 0

    @property
    def pre_skip(self) -> int:
        """Samples of the 48 kHz clock to drop before the first one that was fed."""
        return self._lookahead_samples * self._clock_ratio

    @property
    def samples(self) -> int:
        """Samples fed so far, on the 48 kHz clock."""
        return self._samples * self._clock_ratio

    def encode(self, pcm: F32) -> list[bytes]:
        """Add f32 `[samples, channels]`; return the packets that are complete now."""
        self._samples += len(pcm)
        self._pending += to_pcm16(pcm)
        return self._drain()

    def finish(self) -> list[bytes]:
        """Return the last packets: the rest of the sound and what the lookahead still holds."""
        packets = -(-(self._samples + self._lookahead_samples) // self._packet_samples)
        missing_samples = (packets - self._packets) * self._packet_samples
        self._pending += bytes(missing_samples * self._sample_bytes - len(self._pending))
        return self._drain()

    def _drain(self) -> list[bytes]:
        packet_bytes = self._packet_samples * self._sample_bytes
        packets = []
        while len(self._pending) >= packet_bytes:
            pcm16 = bytes(self._pending[:packet_bytes])
            del self._pending[:packet_bytes]
            packets.append(self._encoder.encode(pcm16, self._packet_samples))
        self._packets += len(packets)
        return packets
