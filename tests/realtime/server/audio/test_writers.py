"""Every format: what a real decoder hears, how many samples, and how soon."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import opuslib
import pytest
from numpy.typing import NDArray

from realtime.server.audio import FORMATS, OpusEncoder, open_writer

F32 = NDArray[np.float32]
Decode = Callable[[str, bytes], tuple[F32, int]]
Steps = Callable[..., F32]
Pitches = Callable[..., list[int]]

FRAME_SAMPLES = 1920
# What a player hears before the sound of a streamed MP3: a frame that would have held the length
# (576 samples), and the delay of the encoder and the decoder (576 + 529).
MP3_LEAD_SAMPLES = 1681


def in_pieces(pcm: F32, piece_samples: int) -> list[F32]:
    return [pcm[i : i + piece_samples] for i in range(0, len(pcm), piece_samples)]


def write_all(audio_format: str, pcm: F32, rate_hz: int = 24_000, piece: int = 1920) -> bytes:
    writer = open_writer(audio_format, rate_hz, pcm.shape[1])  # type: ignore[arg-type]
    return b"".join(writer.write(part) for part in in_pieces(pcm, piece)) + writer.finish()


@pytest.mark.parametrize("audio_format", ["pcm", "wav", "flac"])
def test_lossless_formats_hold_exactly_the_sound(
    audio_format: str, decode: Decode, steps: Steps
) -> None:
    pcm = steps(9)[:-777]
    heard, rate_hz = decode(audio_format, write_all(audio_format, pcm, piece=1000))
    assert rate_hz == 24_000
    assert heard.shape == pcm.shape
    np.testing.assert_allclose(heard, pcm, atol=1 / 32767)


@pytest.mark.parametrize("tail_samples", [0, 1, 479, 480, 1919])
def test_ogg_opus_has_exactly_the_samples_and_the_sound_in_place(
    tail_samples: int, decode: Decode, steps: Steps, pitches: Pitches
) -> None:
    pcm = steps(12)[: 11 * FRAME_SAMPLES + tail_samples]
    heard, rate_hz = decode("opus", write_all("opus", pcm))
    assert rate_hz == 24_000
    assert len(heard) == len(pcm)
    assert pitches(heard, rate_hz) == [400 + 100 * i for i in range(11)]


def test_mp3_has_all_the_sound_after_a_fixed_lead(
    decode: Decode, steps: Steps, pitches: Pitches
) -> None:
    pcm = steps(12)
    heard, rate_hz = decode("mp3", write_all("mp3", pcm))
    assert rate_hz == 24_000
    assert len(heard) - MP3_LEAD_SAMPLES >= len(pcm)
    assert pitches(heard[MP3_LEAD_SAMPLES:][: len(pcm)], rate_hz) == [
        400 + 100 * i for i in range(12)
    ]


@pytest.mark.parametrize("audio_format", FORMATS)
def test_any_cutting_gives_the_same_bytes(
    audio_format: str, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: 7)
    pcm = steps(6)
    by_frame = write_all(audio_format, pcm, piece=FRAME_SAMPLES)
    at_once = write_all(audio_format, pcm, piece=len(pcm))
    assert by_frame == at_once


@pytest.mark.parametrize(
    ("audio_format", "frames"), [("pcm", 1), ("wav", 1), ("opus", 1), ("mp3", 3), ("flac", 4)]
)
def test_the_first_frames_can_be_heard_before_the_file_ends(
    audio_format: str, frames: int, decode: Decode, steps: Steps
) -> None:
    writer = open_writer(audio_format, 24_000, 1)  # type: ignore[arg-type]
    sent = b"".join(writer.write(part) for part in in_pieces(steps(frames), FRAME_SAMPLES))
    heard, _ = decode(audio_format, sent)
    assert len(heard) > 0
    assert np.abs(heard).max() > 0.1


def test_wav_header_comes_with_the_first_audio_and_says_unknown_length(steps: Steps) -> None:
    writer = open_writer("wav", 24_000, 1)
    first = writer.write(steps(1))
    fields = struct.unpack("<4sI4s4sIHHIIHH4sI", first[:44])
    assert fields == (
        *(b"RIFF", 0xFFFFFFFF, b"WAVE", b"fmt ", 16, 1, 1, 24_000, 48_000, 2, 16),
        *(b"data", 0xFFFFFFFF),
    )
    assert len(first) == 44 + 2 * FRAME_SAMPLES
    assert len(writer.write(steps(1))) == 2 * FRAME_SAMPLES
    assert writer.finish() == b""


@pytest.mark.parametrize("audio_format", ["opus", "mp3"])
def test_a_rate_the_format_cannot_hold_is_resampled(
    audio_format: str, decode: Decode, steps: Steps, pitches: Pitches
) -> None:
    pcm = steps(8, 37_500)
    writer = open_writer(audio_format, 37_500, 1)  # type: ignore[arg-type]
    data = b"".join(map(writer.write, in_pieces(pcm, 3000))) + writer.finish()
    heard, rate_hz = decode(audio_format, data)
    assert rate_hz == writer.rate_hz == 48_000
    if audio_format == "opus":
        assert len(heard) == round(len(pcm) * 48_000 / 37_500)
        assert pitches(heard, rate_hz) == [400 + 100 * i for i in range(8)]


@pytest.mark.parametrize("audio_format", [f for f in FORMATS if f != "pcm"])
def test_stereo_keeps_left_and_right(audio_format: str, decode: Decode) -> None:
    tones_hz = (400, 1500)
    t = np.arange(24_000)[:, None] / 24_000
    pcm = (0.4 * np.sin(2 * np.pi * t * np.array(tones_hz))).astype(np.float32)
    heard, rate_hz = decode(audio_format, write_all(audio_format, pcm))
    second_half = heard[len(heard) // 2 :][: rate_hz // 4]
    spectrum = np.abs(np.fft.rfft(second_half * np.hanning(len(second_half))[:, None], axis=0))
    levels = spectrum[[hz // 4 for hz in tones_hz]]  # [tone, channel]
    assert levels[0, 0] > 3 * levels[1, 0]
    assert levels[1, 1] > 3 * levels[0, 1]


@pytest.mark.parametrize("audio_format", ["wav", "opus"])
def test_a_file_without_sound_is_still_a_file(audio_format: str, decode: Decode) -> None:
    heard, rate_hz = decode(audio_format, open_writer(audio_format, 24_000, 1).finish())  # type: ignore[arg-type]
    assert (len(heard), rate_hz) == (0, 24_000)


@pytest.mark.parametrize("rate_hz", [24_000, 48_000])
def test_opus_packets_decode_to_the_sound_after_the_pre_skip(
    rate_hz: int, steps: Steps, pitches: Pitches
) -> None:
    pcm = steps(10, rate_hz)
    encoder = OpusEncoder(rate_hz)
    packets = [p for part in in_pieces(pcm, 1234) for p in encoder.encode(part)]
    assert len(packets) == 40
    packets += encoder.finish()
    decoder = opuslib.Decoder(48_000, 1)
    heard16 = b"".join(decoder.decode(packet, 960) for packet in packets)
    heard = np.frombuffer(heard16, "<i2").astype(np.float32)[encoder.pre_skip :, None]
    assert encoder.pre_skip == 312
    assert encoder.samples == 10 * 3840
    assert encoder.samples <= len(heard) < encoder.samples + 960
    assert pitches(heard[: encoder.samples], 48_000) == [400 + 100 * i for i in range(10)]


def test_opus_refuses_a_rate_it_cannot_take() -> None:
    with pytest.raises(ValueError, match="not 44100: resample first"):
        OpusEncoder(44_100)
