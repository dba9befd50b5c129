"""Ogg pages for Opus (RFC 3533, RFC 7845), flushed as soon as packets exist.

libsndfile's own Ogg writer holds its first page back for about a second; this one holds nothing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from realtime.protocol.frames import OPUS_CLOCK_HZ
from realtime.server.audio.opus import PACKETS_PER_S

PACKETS_PER_PAGE = 4  # 80 ms, one frame of the model
_PACKET_TICKS = OPUS_CLOCK_HZ // PACKETS_PER_S
_FIRST_PAGE, _LAST_PAGE = 0x02, 0x04
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class OggOpusMuxer:
    """One logical stream. A granule position counts 48 kHz samples, pre-skip included."""

    def __init__(self, *, rate_hz: int, channels: int, pre_skip: int, serial: int) -> None:
        """`rate_hz` is informative (what was encoded); `serial` is a u32 of the caller's choice."""
        self._head = struct.pack("<8sBBHIhB", b"OpusHead", 1, channels, pre_skip, rate_hz, 0, 0)
        self._serial = serial
        self._pages = 0
        self._granule = 0

    def headers(self) -> bytes:
        """The two header pages, which come before everything else."""
        vendor = b"moss-realtime"
        tags = b"OpusTags" + struct.pack("<I", len(vendor)) + vendor + struct.pack("<I", 0)
        return self._page([self._head], 0, _FIRST_PAGE) + self._page([tags], 0)

    def pages(self, packets: Sequence[bytes]) -> bytes:
        """Pages of at most 80 ms that hold all of `packets` (20 ms each)."""
        out = bytearray()
        for start in range(0, len(packets), PACKETS_PER_PAGE):
            group = packets[start : start + PACKETS_PER_PAGE]
            self._granule += len(group) * _PACKET_TICKS
            out += self._page(group, self._granule)
        return bytes(out)

    def last_page(self, packets: Sequence[bytes], granule: int) -> bytes:
        """The page that ends the stream.

        `granule` says where the sound ends: pre-skip plus the samples that were encoded. A player
        drops what the packets hold beyond it.
        """
        return self._page(packets, granule, _LAST_PAGE)

    def _page(self, packets: Sequence[bytes], granule: int, flags: int = 0) -> bytes:
        lacing = b"".join(b"\xff" * (len(p) // 255) + bytes([len(p) % 255]) for p in packets)
        head = struct.pack("<4sBBqII", b"OggS", 0, flags, granule, self._serial, self._pages)
        tail = bytes([len(lacing)]) + lacing + b"".join(packets)
        self._pages += 1
        return head + struct.pack("<I", _crc(head + bytes(4) + tail)) + tail


def _crc(page: bytes) -> int:
    """CRC-32 of RFC 3533: polynomial 0x04C11DB7, initial value 0, most significant bit first.

    zlib's runs least significant bit first and inverts at both ends, so bits are mirrored and the
    inversions undone.
    """
    mirrored = zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(_REVERSED), "big")
