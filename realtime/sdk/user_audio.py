"""The user's sound as numbered frames, without I/O."""

from __future__ import annotations

from collections.abc import Iterator

from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import (
    FRAME_TYPES,
    FROM_CLIENT,
    SAMPLE_BYTES,
    AudioFrame,
    Flags,
)
from realtime.protocol.messages import InputFormat
from realtime.protocol.opus_packet import packet_samples

_PIECE_MS = 100


class UserAudioFrames:
    """Numbers frames from 0 and times them from the first sample of the session."""

    def __init__(self, audio: InputFormat) -> None:
        self._audio = audio
        self._seq = 0
        self._samples = 0

    def use(self, audio: InputFormat) -> None:
        """Cut what follows by another rate."""
        self._audio = audio

    def frames(self, data: bytes) -> list[bytes]:
        """Return the frames that carry `data`: one Opus packet, or samples of any length.

        Raises `ValueError` when that is not what it is.
        """
        if self._audio.codec == "opus":
            return [self._frame(data, _opus_samples(data))]
        size = SAMPLE_BYTES[self._audio.codec]
        if len(data) % size:
            raise ValueError(
                f"a sample of {self._audio.codec} has {size} bytes; {len(data)} bytes are not a "
                "whole number of samples"
            )
        return [self._frame(piece, len(piece) // size) for piece in self._pieces(data, size)]

    def _pieces(self, data: bytes, size: int) -> Iterator[bytes]:
        step = self._audio.sample_rate * _PIECE_MS // 1000 * size
        for at in range(0, len(data), step):
            yield data[at : at + step]

    def _frame(self, payload: bytes, samples: int) -> bytes:
        kind = FRAME_TYPES[self._audio.codec] | FROM_CLIENT
        pts = self._samples % (1 << 32)
        frame = AudioFrame(kind, Flags.NONE, 0, self._seq, pts, samples, 0, payload)
        self._seq += 1
        self._samples += samples
        return frame.pack()


def _opus_samples(packet: bytes) -> int:
    try:
        return packet_samples(packet)
    except ProtocolError as error:
        raise ValueError(error.message) from None
