"""Sound as a client hears it: a stream's frames, decoded by other means than the server's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import opuslib
from numpy.typing import NDArray

from realtime.protocol.frames import AudioFrame, Flags, unpack_packets

OPUS_HZ = 48_000


def check_numbering(frames: Sequence[AudioFrame]) -> None:
    """Numbers without a hole, times that touch, one first and one last frame."""
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    assert frames[0].pts == 0
    assert all(a.pts + a.samples == b.pts for a, b in pairwise(frames))
    firsts = [Flags.FIRST in frame.flags for frame in frames]
    lasts = [Flags.LAST_OF_RESPONSE in frame.flags for frame in frames]
    assert firsts == [True] + [False] * (len(frames) - 1)
    assert lasts == [False] * (len(frames) - 1) + [True]


def heard(codec: str, frames: Sequence[AudioFrame], pre_skip: int = 0) -> NDArray[np.float32]:
    """Mono samples; every frame holds as many as it says (Opus: all together do)."""
    if codec == "opus":
        return _heard_opus(frames, pre_skip)
    for frame in frames:
        assert len(_samples(codec, frame.payload)) == frame.samples
    return _samples(codec, b"".join(frame.payload for frame in frames))


def _heard_opus(frames: Sequence[AudioFrame], pre_skip: int) -> NDArray[np.float32]:
    decoder = opuslib.Decoder(OPUS_HZ, 1)
    packets = [packet for frame in frames for packet in unpack_packets(frame.payload)]
    pcm = b"".join(decoder.decode(packet, OPUS_HZ // 50) for packet in packets)
    total = sum(frame.samples for frame in frames)
    return np.frombuffer(pcm, "<i2")[pre_skip : pre_skip + total] / np.float32(32767)


def _samples(codec: str, data: bytes) -> NDArray[np.float32]:
    if codec == "pcm_s16le":
        return np.frombuffer(data, "<i2") / np.float32(32767)
    if codec == "pcm_f32le":
        return np.frombuffer(data, "<f4")
    expand = _expand_mulaw if codec == "mulaw" else _expand_alaw
    return np.array([expand(byte) for byte in range(256)], np.float32)[
        np.frombuffer(data, np.uint8)
    ] / np.float32(32767)


def _expand_mulaw(byte: int) -> int:
    byte = ~byte & 255
    magnitude = (((2 * (byte & 15) + 33) << (byte >> 4 & 7)) - 33) * 4
    return -magnitude if byte & 128 else magnitude


def _expand_alaw(byte: int) -> int:
    byte ^= 0x55
    segment, interval = byte >> 4 & 7, byte & 15
    magnitude = 2 * interval + 1 if segment == 0 else (2 * interval + 33) << (segment - 1)
    return 8 * (magnitude if byte & 128 else -magnitude)
