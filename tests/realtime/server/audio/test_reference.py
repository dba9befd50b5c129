"""Reference recordings: what is accepted, and what every bad one is told."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from realtime.server.audio import FORMATS, ReferenceError, decode_reference, open_writer
from tests.realtime.server.recordings import packed, tone


@pytest.mark.parametrize(
    "options",
    [
        {"format": "WAV", "subtype": "PCM_16"},
        {"format": "WAV", "subtype": "FLOAT"},
        {"format": "WAVEX", "subtype": "PCM_24"},
        {"format": "FLAC"},
        {"format": "MP3"},
        {"format": "OGG", "subtype": "VORBIS"},
        {"format": "OGG", "subtype": "OPUS"},
    ],
    ids=lambda options: "-".join(options.values()),
)
def test_accepted_formats(options: dict[str, str]) -> None:
    pcm = decode_reference(packed(tone(2, 48_000), 48_000, **options), 24_000)
    assert pcm.shape == (48_000,)
    assert pcm.dtype == np.float32
    spectrum = np.abs(np.fft.rfft(pcm))
    assert spectrum.argmax() / 2 == pytest.approx(440, abs=1)
    assert np.abs(pcm[1000:-1000]).max() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("audio_format", [f for f in FORMATS if f != "pcm"])
def test_our_own_streamed_files_are_accepted(audio_format: str) -> None:
    writer = open_writer(audio_format, 24_000, 1)  # type: ignore[arg-type]
    pcm = decode_reference(writer.write(tone(2)) + writer.finish(), 24_000)
    assert len(pcm) == pytest.approx(48_000, abs=2500 if audio_format == "mp3" else 0)


def test_stereo_is_averaged() -> None:
    stereo = tone(1, channels=2) * np.array([1, 0], np.float32)
    pcm = decode_reference(packed(stereo, subtype="FLOAT"), 24_000)
    np.testing.assert_allclose(pcm, tone(1)[:, 0] / 2, atol=1e-6)


@pytest.mark.parametrize("seconds", [1.0, 30.0])
def test_both_limits_are_accepted(seconds: float) -> None:
    assert len(decode_reference(packed(tone(seconds)), 24_000)) == seconds * 24_000


def bomb() -> bytes:
    """Ten minutes of silence in a FLAC of a few kilobytes."""
    return packed(np.zeros((600 * 24_000, 1), np.float32), format="FLAC")


def wav_claiming(rate_hz: int, channels: int = 1) -> bytes:
    form = struct.pack("<HHIIHH", 1, channels, rate_hz, 2 * rate_hz, 2 * channels, 16)
    return (
        struct.pack("<4sI4s4sI", b"RIFF", 200_036, b"WAVE", b"fmt ", 16)
        + form
        + (struct.pack("<4sI", b"data", 200_000) + bytes(range(250)) * 800)
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"not sound at all" * 100, "cannot be decoded as WAV, FLAC, MP3 or Ogg"),
        (packed(tone(2))[:30], "cannot be decoded"),
        (packed(tone(2), format="AIFF"), "AIFF; send WAV, FLAC, MP3 or Ogg"),
        (packed(tone(0.99)), "lasts 0.99 s; send 1 to 30 s"),
        (packed(tone(30.1)), "longer than 30 s"),
        (packed(tone(2, channels=8)), "8 channels; send mono or stereo"),
        (packed(0 * tone(2)), "silent"),
        (packed(tone(2) * np.float32(np.nan), subtype="FLOAT"), "not numbers"),
        (packed(tone(2) + np.float32(np.inf), subtype="FLOAT"), "not numbers"),
        (packed(tone(2, 4_000), 4_000), "4000 Hz; send 8000 to 192000 Hz"),
        (wav_claiming(2_000_000_000), "2000000000 Hz"),
        (bomb(), "longer than 30 s"),
    ],
    ids=[
        *("empty", "text", "cut-header", "aiff", "short", "long", "8-channels", "silent"),
        *("nan", "inf", "low-rate", "high-rate", "10-minutes"),
    ],
)
def test_bad_recordings_are_told_why(data: bytes, message: str) -> None:
    with pytest.raises(ReferenceError, match=message):
        decode_reference(data, 24_000)


def test_a_corrupt_body_never_raises_anything_else() -> None:
    rng = np.random.default_rng(5)
    for options in ({"format": "FLAC"}, {"format": "MP3"}, {"format": "OGG"}, {"format": "WAV"}):
        good = bytearray(packed(tone(1.5), **options))
        for _ in range(20):
            bad = bytearray(good)
            for at in rng.integers(0, len(bad), 40):
                bad[at] = rng.integers(256)
            try:
                pcm = decode_reference(bytes(bad), 24_000)
            except ReferenceError:
                continue
            assert 24_000 <= len(pcm) <= 30 * 24_000
            assert np.isfinite(pcm).all()
