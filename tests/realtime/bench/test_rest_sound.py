"""Sound out of bodies that come in pieces of any size."""

from __future__ import annotations

import io
import wave

import httpx
import numpy as np
import pytest

from realtime.bench.rest import PcmStream, RestOptions, stated_format

SAMPLES = np.arange(1, 601, dtype="<i2").tobytes()


def wav(rate_hz: int, channels: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((channels, 2, rate_hz, 0, "NONE", ""))
        written.writeframes(SAMPLES)
    return file.getvalue()


@pytest.mark.parametrize("size", [1, 3, 43, 44, 45, 7000])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_are_whole_and_the_header_is_none(size: int, channels: int) -> None:
    for data, stream in (
        (SAMPLES, PcmStream(24_000, channels)),
        (wav(48_000, channels), PcmStream(24_000, 1)),
    ):
        heard = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
        assert all(len(part) % (2 * channels) == 0 for part in heard)
        assert b"".join(heard) == SAMPLES
        assert stream.channels == channels
        assert stream.duration_s(len(SAMPLES)) == 300 / channels * 2 / stream.rate_hz


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, (22_050, 2)),
        ({"content-type": "audio/pcm;rate=16000;channels=1"}, (16_000, 1)),
        ({"content-type": "audio/pcm", "x-audio-sample-rate": "48000"}, (48_000, 2)),
    ],
)
def test_what_the_server_says_of_its_format(
    headers: dict[str, str], found: tuple[int, int]
) -> None:
    options = RestOptions(rate_hz=22_050, channels=2)
    assert stated_format(httpx.Headers(headers), options) == found
