"""G.711 against the formula of the standard, for every sample and every byte there is."""

from __future__ import annotations

import numpy as np
import pytest

from realtime.server.audio.g711 import decode_alaw, decode_mulaw, encode_alaw, encode_mulaw

ALL_SAMPLES = np.arange(-32768, 32768).astype(np.int16)
ALL_BYTES = bytes(range(256))


def mulaw_of(sample: int) -> int:
    """ITU-T G.711 table 2, on 14 bits: bias 33, the leading one gives the segment."""
    magnitude = min(((~sample if sample < 0 else sample) >> 2) + 33, 8191)
    segment = magnitude.bit_length() - 6
    interval = magnitude >> (segment + 1) & 15
    return ~((sample < 0) << 7 | segment << 4 | interval) & 255


def mulaw_value(byte: int) -> int:
    byte = ~byte & 255
    segment, interval = byte >> 4 & 7, byte & 15
    value = ((2 * interval + 33) << segment) - 33
    return 4 * (-value if byte & 128 else value)


def alaw_of(sample: int) -> int:
    """ITU-T G.711 table 1, on 12 bits of magnitude; even bits are inverted."""
    magnitude = (~sample if sample < 0 else sample) >> 4
    segment = max(magnitude.bit_length() - 4, 0)
    interval = (magnitude >> max(segment - 1, 0)) & 15
    return ((sample >= 0) << 7 | segment << 4 | interval) ^ 0x55


def alaw_value(byte: int) -> int:
    byte ^= 0x55
    segment, interval = byte >> 4 & 7, byte & 15
    value = 2 * interval + 1 if segment == 0 else (2 * interval + 33) << (segment - 1)
    return 8 * (value if byte & 128 else -value)


LAWS = {
    "mulaw": (encode_mulaw, decode_mulaw, mulaw_of, mulaw_value),
    "alaw": (encode_alaw, decode_alaw, alaw_of, alaw_value),
}


@pytest.fixture(params=sorted(LAWS))
def law(request: pytest.FixtureRequest):
    return LAWS[request.param]


def test_every_sample_gives_the_standards_byte(law):
    encode, _, byte_of, _ = law
    expected = [byte_of(sample) for sample in ALL_SAMPLES.tolist()]
    assert list(encode(ALL_SAMPLES)) == expected


def test_every_byte_gives_the_standards_sample(law):
    _, decode, _, value_of = law
    assert decode(ALL_BYTES).tolist() == [value_of(byte) for byte in ALL_BYTES]


def test_decoding_and_encoding_again_changes_nothing(law):
    encode, decode, _, _ = law
    again = decode(encode(decode(ALL_BYTES)))
    np.testing.assert_array_equal(again, decode(ALL_BYTES))


def test_a_sample_comes_back_within_half_its_interval(law):
    encode, decode, _, _ = law
    error = np.abs(decode(encode(ALL_SAMPLES)).astype(int) - ALL_SAMPLES)
    half = np.maximum(8, (np.abs(ALL_SAMPLES.astype(int)) + 132) / 32)
    assert (error <= half + 1).all()


def test_silence_and_known_bytes():
    assert encode_mulaw(np.zeros(2, np.int16)) == b"\xff\xff"
    assert encode_alaw(np.zeros(2, np.int16)) == b"\xd5\xd5"
    assert encode_mulaw(np.array([32767, -32768], np.int16)) == b"\x80\x00"
    assert encode_alaw(np.array([32767, -32768], np.int16)) == b"\xaa\x2a"
