"""The frames of user audio: in their order, of the agreed format, in whole samples."""

from __future__ import annotations

import dataclasses

from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import (
    FRAME_TYPES,
    FROM_CLIENT,
    OPUS_CLOCK_HZ,
    SAMPLE_BYTES,
    AudioFrame,
    Flags,
    unpack_packets,
)
from realtime.protocol.messages import InputFormat
from realtime.protocol.opus_packet import packet_samples


@dataclasses.dataclass(frozen=True, slots=True)
class InputSound:
    """A frame's sound: `packets` are Opus packets, or one run of samples.

    `samples` counts at the format's rate, for Opus at 48 kHz.
    """

    packets: tuple[bytes, ...]
    samples: int


class InputFrames:
    """Reads frames of format `audio`, numbered 0, 1, 2...; `next_seq` is the one awaited.

    A frame that is refused counts, unless its number was not the one awaited. Of several that are
    refused in a row only the first is an error, so that a microphone cannot cause a flood of them.
    """

    def __init__(self, audio: InputFormat) -> None:
        self.next_seq = 0
        self.audio = audio
        self._refusing = False

    @property
    def clock_hz(self) -> int:
        """Rate that samples are counted at."""
        return OPUS_CLOCK_HZ if self.audio.codec == "opus" else self.audio.sample_rate

    def read(self, data: bytes) -> InputSound | None:
        """Return a frame's sound; None for a frame that came before, and while refusing.

        Raises `ProtocolError`.
        """
        try:
            sound = self._read(AudioFrame.parse(data))
        except ProtocolError:
            if self._refusing:
                return None
            self._refusing = True
            raise
        if sound:
            self._refusing = False
        return sound

    def _read(self, frame: AudioFrame) -> InputSound | None:
        if frame.seq > self.next_seq:
            raise ProtocolError(
                "sequence_gap",
                f"user audio frame {self.next_seq} is awaited, this is {frame.seq}",
                expected=self.next_seq,
                param="seq",
            )
        if frame.seq < self.next_seq:
            return None
        self.next_seq += 1
        self._check_type(frame)
        return _opus_sound(frame) if self.audio.codec == "opus" else self._sample_sound(frame)

    def _check_type(self, frame: AudioFrame) -> None:
        codec = self.audio.codec
        expected = FRAME_TYPES[codec] | FROM_CLIENT
        if frame.type != expected:
            raise ProtocolError(
                "bad_audio",
                f"user audio of this session is {codec}, frames of type 0x{expected:02x}; frame "
                f"{frame.seq} is of type 0x{frame.type:02x}",
            )

    def _sample_sound(self, frame: AudioFrame) -> InputSound:
        size = SAMPLE_BYTES[self.audio.codec]
        samples, rest = divmod(len(frame.payload), size)
        if rest:
            raise ProtocolError(
                "bad_audio",
                f"a sample of {self.audio.codec} has {size} bytes; frame {frame.seq} has "
                f"{len(frame.payload)} bytes, which is not a whole number of samples",
            )
        if samples != frame.samples:
            raise ProtocolError(
                "bad_audio",
                f"frame {frame.seq} holds {samples} samples, but its header says {frame.samples}",
            )
        return InputSound((frame.payload,), samples)


def _opus_sound(frame: AudioFrame) -> InputSound:
    packed = Flags.PACKED in frame.flags
    packets = unpack_packets(frame.payload) if packed else [frame.payload]
    return InputSound(tuple(packets), sum(packet_samples(packet) for packet in packets))
