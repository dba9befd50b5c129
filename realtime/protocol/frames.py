"""Binary audio frames: a 16-byte little-endian header, then whole samples or whole Opus packets.

Under msgpack a control frame is a map, so its first byte is 0x80-0x8f, 0xde or 0xdf; an audio
frame's is 0x01-0x1f. The two never collide.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Sequence
from typing import Final

from realtime.protocol.errors import ProtocolError
from realtime.protocol.parts import Codec

_HEADER: Final = struct.Struct("<BBHIIHH")
HEADER_BYTES: Final = _HEADER.size
_EPOCHS: Final = 1 << 16


class FrameType(enum.IntEnum):
    """What the payload is. From a client the same with bit 0x10."""

    PCM_S16LE = 0x01
    OPUS = 0x02
    PCM_F32LE = 0x03
    MULAW = 0x04
    ALAW = 0x05


FROM_CLIENT: Final = 0x10

FRAME_TYPES: Final[dict[Codec, FrameType]] = {
    "pcm_s16le": FrameType.PCM_S16LE,
    "opus": FrameType.OPUS,
    "pcm_f32le": FrameType.PCM_F32LE,
    "mulaw": FrameType.MULAW,
    "alaw": FrameType.ALAW,
}

SAMPLE_BYTES: Final[dict[Codec, int]] = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
"""Bytes of one sample; Opus has none."""

OPUS_CLOCK_HZ: Final = 48_000
"""Opus counts time at 48 kHz whatever rate it was fed (RFC 7845, section 4)."""


class Flags(enum.IntFlag):
    """Flags of an audio frame."""

    NONE = 0
    FIRST = 1
    LAST_OF_SEGMENT = 2
    LAST_OF_RESPONSE = 4
    REPLAYED = 8
    PACKED = 16
    DISCONTINUITY = 32


@dataclasses.dataclass(frozen=True, slots=True)
class AudioFrame:
    """One audio frame.

    `seq` counts the stream's frames from 0 without holes. `pts` is the first sample's index in the
    response and `samples` the payload's length, both per channel at the stream's rate (Opus: 48
    kHz, decoded, pre-skip removed). `payload` of a `PACKED` frame is read with `unpack_packets`.
    """

    type: int
    flags: Flags
    stream: int
    seq: int
    pts: int
    samples: int
    epoch: int
    payload: bytes

    def pack(self) -> bytes:
        """Return header and payload."""
        header = _HEADER.pack(
            self.type, self.flags, self.stream, self.seq, self.pts, self.samples, self.epoch
        )
        return header + self.payload

    @classmethod
    def parse(cls, data: bytes) -> AudioFrame:
        """Read a frame; raises `ProtocolError` with code `bad_message`."""
        if len(data) < HEADER_BYTES:
            raise ProtocolError(
                "bad_message",
                f"an audio frame has a header of {HEADER_BYTES} bytes; this one has {len(data)}",
            )
        kind, flags, stream, seq, pts, samples, epoch = _HEADER.unpack_from(data)
        if kind & ~FROM_CLIENT not in FrameType.__members__.values():
            raise ProtocolError("bad_message", f"0x{kind:02x} is not a type of audio frame")
        payload = data[HEADER_BYTES:]
        return cls(kind, Flags(flags), stream, seq, pts, samples, epoch, payload)


def is_audio(data: bytes) -> bool:
    """Whether a binary WebSocket message is an audio frame and not a msgpack map."""
    return bool(data) and 0x01 <= data[0] <= 0x1F


def pack_packets(packets: Sequence[bytes]) -> bytes:
    """Join Opus packets as repeated `u16 length, bytes`, the payload of a `PACKED` frame."""
    return b"".join(struct.pack("<H", len(packet)) + packet for packet in packets)


def unpack_packets(payload: bytes) -> list[bytes]:
    """Split the payload of a `PACKED` frame; raises `ProtocolError` when it is cut short."""
    packets = []
    at = 0
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 2], "little")
        packet = payload[at + 2 : at + 2 + size]
        if at + 2 + size > len(payload):
            raise ProtocolError("bad_message", f"a packed payload is cut short at byte {at}")
        packets.append(packet)
        at += 2 + size
    return packets


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`, which wraps at 65,536."""
    return (epoch + 1) % _EPOCHS


def epoch_is_before(epoch: int, other: int) -> bool:
    """Whether `epoch` is older than `other` by serial-number comparison (RFC 1982, 16 bits)."""
    return 0 < (other - epoch) % _EPOCHS < _EPOCHS // 2
