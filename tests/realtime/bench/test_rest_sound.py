"""Sound and events out of bodies that come in pieces of any size."""

from __future__ import annotations

import io
import wave

import httpx
import numpy as np
import pytest

from realtime.bench.events import EventStream, ending_of
from realtime.bench.rest import PcmStream, RestOptions, stated_format
from realtime.bench.trip import ServerClock

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


@pytest.mark.parametrize("size", [1, 2, 7, 7000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_events_are_whole_objects(size: int, line_end: bytes) -> None:
    body = line_end.join(
        (
            *(b"event: a", b'data: {"type": "a",', b'data: "b": 1}', b""),
            *(b": a comment", b"", b"data:{}", b"", b"data: [DONE]", b"", b"data: {"),
        )
    )
    stream = EventStream()
    found = [
        event for at in range(0, len(body), size) for event in stream.feed(body[at : at + size])
    ]
    assert found == [{"type": "a", "b": 1}, {}]


@pytest.mark.parametrize("body", [b"data: {\n\n", b"data: [1]\n\n"])
def test_what_is_no_event_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|not an object"):
        EventStream().feed(body)


def test_how_an_answer_ended() -> None:
    capped = {"finish_reason": "length", "audio_duration_ms": 320}
    assert ending_of(capped) == ("incomplete", 320, None)
    assert ending_of({"ttfa_ms": 12}) == ("completed", None, ServerClock(ttfa_ms=12))
