"""Our Ogg pages, read by a parser written from RFC 3533 and RFC 7845."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from realtime.server.audio import open_writer
from realtime.server.audio.ogg import OggOpusMuxer


@dataclasses.dataclass(frozen=True)
class Page:
    flags: int
    granule: int
    serial: int
    sequence: int
    packets: list[bytes]


def slow_crc(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = ((crc << 1) ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return crc


def parse(data: bytes) -> Iterator[Page]:
    while data:
        magic, version, flags, granule, serial, sequence, crc, count = struct.unpack(
            "<4sBBqIIIB", data[:27]
        )
        assert (magic, version) == (b"OggS", 0)
        lacing = data[27 : 27 + count]
        size = 27 + count + sum(lacing)
        page, data = data[:size], data[size:]
        assert crc == slow_crc(page[:22] + bytes(4) + page[26:])
        packets, packet, at = [], b"", 27 + count
        for length in lacing:
            packet += page[at : at + length]
            at += length
            if length < 255:
                packets.append(packet)
                packet = b""
        assert packet == b"", "a packet goes on in the next page"
        yield Page(flags, granule, serial, sequence, packets)


def test_headers_granules_and_flags(steps: Callable[[int], NDArray[np.float32]]) -> None:
    writer = open_writer("opus", 24_000, 1)
    pcm = steps(3)
    pages = list(parse(writer.write(pcm[:4000]) + writer.write(pcm[4000:]) + writer.finish()))
    head, tags, *audio = pages
    assert head.packets == [struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, 312, 24_000, 0, 0)]
    assert (head.flags, head.granule, tags.granule) == (2, 0, 0)
    assert tags.packets == [b"OpusTags\x0d\0\0\0moss-realtime\0\0\0\0"]
    assert [page.sequence for page in pages] == list(range(len(pages)))
    assert len({page.serial for page in pages}) == 1
    assert [len(page.packets) for page in audio] == [4, 4, 4, 1]
    assert [page.granule for page in audio] == [3840, 7680, 11520, 11520 + 312]
    assert [page.flags for page in audio] == [0, 0, 0, 4]


@given(st.lists(st.binary(max_size=1275), max_size=12))
def test_packets_of_any_size_come_back(packets: list[bytes]) -> None:
    muxer = OggOpusMuxer(rate_hz=24_000, channels=1, pre_skip=312, serial=1)
    data = muxer.pages(packets) + muxer.last_page([b"end"], 99)
    pages = list(parse(data))
    assert [p for page in pages for p in page.packets] == [*packets, b"end"]
    assert pages[-1].granule == 99
