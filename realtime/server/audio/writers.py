"""Audio files written as a stream: each `write` returns all bytes that the codec has settled."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable
from typing import Any, Literal, Protocol, get_args

import numpy as np
import soundfile

from realtime.protocol.frames import OPUS_CLOCK_HZ
from realtime.server.audio.level import F32, to_pcm16
from realtime.server.audio.ogg import PACKETS_PER_PAGE, OggOpusMuxer
from realtime.server.audio.opus import (
    OPUS_RATES_HZ,
    OpusEncoder,
    OpusUnavailable,
    load_opuslib,
)
from realtime.server.audio.resample import StreamResampler

AudioFormat = Literal["mp3", "opus", "flac", "wav", "pcm"]
FORMATS: tuple[AudioFormat, ...] = get_args(AudioFormat)

_UNKNOWN_SIZE = 0xFFFFFFFF
_MP3_RATES_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
# libsndfile maps 0..1 to the bit rates of the MPEG version from highest to lowest; up to 24 kHz
# this is 96 kbit/s. Constant rate, because a stream cannot go back to write its length and a
# player then estimates it from the bit rate.
_MP3_OPTIONS = {"compression_level": 0.4, "bitrate_mode": "CONSTANT"}


class Writer(Protocol):
    """A file being written: `write` any number of times, then `finish` once."""

    @property
    def content_type(self) -> str:
        """The HTTP content type."""

    @property
    def rate_hz(self) -> int:
        """The rate of the written file."""

    def write(self, pcm: F32) -> bytes:
        """Add f32 `[samples, channels]` and return the bytes that are ready."""

    def finish(self) -> bytes:
        """Return the rest of the file."""


def available_formats() -> tuple[AudioFormat, ...]:
    """The formats that this machine can write: all of them unless libopus is missing."""
    try:
        load_opuslib()
    except OpusUnavailable:
        return tuple(name for name in FORMATS if name != "opus")
    return FORMATS


def open_writer(
    audio_format: AudioFormat, rate_hz: int, channels: int, *, file_hz: int | None = None
) -> Writer:
    """Start a file of sound at `rate_hz`, written at `file_hz`, or as it is.

    A format that cannot hold that rate is written at 48 kHz. Raises `OpusUnavailable` without
    libopus.
    """
    if file_hz is not None and file_hz != rate_hz:
        return ResamplingWriter(open_writer(audio_format, file_hz, channels), rate_hz, channels)
    match audio_format:
        case "pcm":
            return PcmWriter(rate_hz, channels)
        case "wav":
            return WavWriter(rate_hz, channels)
        case "flac":
            return SoundFileWriter("audio/flac", rate_hz, channels, format="FLAC", subtype="PCM_16")
        case "mp3":
            return _at_supported_rate(_open_mp3, _MP3_RATES_HZ, rate_hz, channels)
        case "opus":
            return _at_supported_rate(OggOpusWriter, OPUS_RATES_HZ, rate_hz, channels)


class PcmWriter:
    """Bare s16le, interleaved."""

    def __init__(self, rate_hz: int, channels: int) -> None:
        self.rate_hz = rate_hz
        self.content_type = f"audio/pcm;rate={rate_hz};channels={channels}"

    def write(self, pcm: F32) -> bytes:
        return to_pcm16(pcm)

    def finish(self) -> bytes:
        return b""


class WavWriter:
    """RIFF with 16-bit PCM; both sizes say `unknown`, as the length is when the header leaves."""

    content_type = "audio/wav"

    def __init__(self, rate_hz: int, channels: int) -> None:
        self.rate_hz = rate_hz
        frame_bytes = 2 * channels
        form = struct.pack("<HHIIHH", 1, channels, rate_hz, rate_hz * frame_bytes, frame_bytes, 16)
        self._header = b"".join(
            (
                struct.pack("<4sI4s", b"RIFF", _UNKNOWN_SIZE, b"WAVE"),
                struct.pack("<4sI", b"fmt ", len(form)) + form,
                struct.pack("<4sI", b"data", _UNKNOWN_SIZE),
            )
        )

    def write(self, pcm: F32) -> bytes:
        header, self._header = self._header, b""
        return header + to_pcm16(pcm)

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return header


class OggOpusWriter:
    """Opus in Ogg: a page leaves with every write, at most 80 ms of sound in each."""

    content_type = "audio/ogg"

    def __init__(self, rate_hz: int, channels: int) -> None:
        self.rate_hz = rate_hz
        self._encoder = OpusEncoder(rate_hz, channels, bitrate=32_000 * channels)
        self._muxer = OggOpusMuxer(
            rate_hz=rate_hz,
            channels=channels,
            pre_skip=self._encoder.pre_skip,
            serial=secrets.randbits(32),
        )
        self._header = self._muxer.headers()

    def write(self, pcm: F32) -> bytes:
        header, self._header = self._header, b""
        return header + self._muxer.pages(self._encoder.encode(pcm))

    def finish(self) -> bytes:
        packets = self._encoder.finish()
        end = self._encoder.pre_skip + self._encoder.samples
        body = packets[:-PACKETS_PER_PAGE]
        return (
            self._header
            + self._muxer.pages(body)
            + self._muxer.last_page(packets[len(body) :], end)
        )


class SoundFileWriter:
    """A format that libsndfile writes, into a sink that forgets what it has given away.

    libsndfile goes back to the header when it closes a file. A stream cannot: FLAC then keeps
    `length unknown`, and MP3 lacks the note about encoder delay, so that players play 70 ms of
    silence before the sound (at 24 kHz) and up to 50 ms after it.
    """

    def __init__(self, content_type: str, rate_hz: int, channels: int, **options: Any) -> None:
        self.content_type = content_type
        self.rate_hz = rate_hz
        self._channels = channels
        self._sink = _StreamSink()
        self._file = soundfile.SoundFile(self._sink, "w", rate_hz, channels, **options)

    def write(self, pcm: F32) -> bytes:
        pcm16 = np.frombuffer(to_pcm16(pcm), "<i2").reshape(-1, self._channels)
        self._file.write(pcm16)
        self._file.flush()
        return self._sink.take()

    def finish(self) -> bytes:
        self._file.close()
        return self._sink.take()


class _StreamSink:
    """A file open for writing whose beginning has already left."""

    def __init__(self) -> None:
        self._position = 0
        self._taken_bytes = 0
        self._kept = bytearray()

    def take(self) -> bytes:
        taken = bytes(self._kept)
        self._taken_bytes += len(taken)
        self._kept.clear()
        return taken

    def write(self, data: bytes) -> int:
        start = self._position - self._taken_bytes
        if start >= 0:
            self._kept[start : start + len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        origin = (0, self._position, self._taken_bytes + len(self._kept))[whence]
        self._position = origin + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        raise NotImplementedError("a stream cannot be read back")


class ResamplingWriter:
    """Another writer behind a resampler to its rate."""

    def __init__(self, writer: Writer, from_hz: int, channels: int) -> None:
        self._writer = writer
        self._resampler = StreamResampler(from_hz, writer.rate_hz, channels)
        self.content_type = writer.content_type
        self.rate_hz = writer.rate_hz

    def write(self, pcm: F32) -> bytes:
        return self._writer.write(self._resampler.push(pcm))

    def finish(self) -> bytes:
        return self._writer.write(self._resampler.finish()) + self._writer.finish()


def _open_mp3(rate_hz: int, channels: int) -> Writer:
    return SoundFileWriter(
        "audio/mpeg", rate_hz, channels, format="MP3", subtype="MPEG_LAYER_III", **_MP3_OPTIONS
    )


def _at_supported_rate(
    open_at: Callable[[int, int], Writer], rates_hz: tuple[int, ...], rate_hz: int, channels: int
) -> Writer:
    if rate_hz in rates_hz:
        return open_at(rate_hz, channels)
    return ResamplingWriter(open_at(OPUS_CLOCK_HZ, channels), rate_hz, channels)
