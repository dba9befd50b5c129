"""The sound of a response on the wire: every sample, once, in order, with exact ends."""

import dataclasses
from random import Random

import numpy as np
import pytest

from engine.fake import FAKE_MODEL
from engine.index_sound import chirp, ramp, read_ramp
from realtime.protocol.frames import FRAME_TYPES, AudioFrame, Flags, unpack_packets
from realtime.protocol.messages import AudioFormat
from realtime.server.audio_stream import AudioStream, bytes_per_s
from tests.realtime.server.decoding import check_numbering, heard

PCM = AudioFormat(codec="pcm_s16le", sample_rate=24000, channels=1, frame_ms=80, frame_samples=1920)
OPUS = AudioFormat(
    codec="opus", sample_rate=48000, channels=1, frame_ms=80, frame_samples=3840, pre_skip=312
)
RATES_HZ = (8000, 16000, 24000, 48000)
LINEAR = ("pcm_s16le", "pcm_f32le")
G711 = ("mulaw", "alaw")
NO_SOUND = np.zeros((0, 1), np.float32)


def encode_all(stream: AudioStream, mono: np.ndarray, *pieces: int) -> list[AudioFrame]:
    """Encode sound in pieces of these lengths, over and over, and the end of the response."""
    frames, start, count = [], 0, 0
    while start < len(mono):
        flags = Flags.FIRST if start == 0 else Flags.NONE
        size = pieces[count % len(pieces)]
        frames.append(stream.encode(mono[start : start + size, None], flags, epoch=3))
        start, count = start + size, count + 1
    frames.append(stream.encode(NO_SOUND, Flags.LAST_OF_SEGMENT | Flags.LAST_OF_RESPONSE, epoch=3))
    made = [frame for frame in frames if frame]
    check_numbering(made)
    assert {(frame.stream, frame.epoch) for frame in made} == {(7, 3)}
    return made


@pytest.mark.parametrize("piece", [480, 960, 1440, 1920])
@pytest.mark.parametrize("codec", LINEAR)
def test_pcm_at_the_models_rate_is_every_sample_exactly(codec: str, piece: int):
    audio = dataclasses.replace(PCM, codec=codec)
    frames = encode_all(AudioStream(7, audio, FAKE_MODEL), ramp(0, 70_000), piece)
    assert {frame.type for frame in frames} == {FRAME_TYPES[codec]}
    assert {frame.samples for frame in frames[:-2]} == {piece}
    pcm = np.rint(heard(codec, frames) * 32767).astype(np.int16)
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(70_000) % 65535)


@pytest.mark.parametrize("codec", G711)
def test_g711_at_the_models_rate_is_every_sample_to_its_precision(codec: str):
    audio = dataclasses.replace(PCM, codec=codec)
    frames = encode_all(AudioStream(7, audio, FAKE_MODEL), ramp(0, 70_000), 1920)
    expected = ramp(0, 70_000)
    tolerance = np.maximum(8 / 32767, (np.abs(expected) + 132 / 32767) / 32) + 2 / 32767
    assert (np.abs(heard(codec, frames) - expected) <= tolerance).all()


@pytest.mark.parametrize("pieces", [(480,), (1920,), (1, 7, 1920, 333)])
@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("codec", [*LINEAR, *G711])
def test_at_any_rate_every_sample_is_where_it_belongs(codec, rate_hz, pieces):
    """One sample too many or too few anywhere would shift the rest by more than is allowed."""
    audio = dataclasses.replace(PCM, codec=codec, sample_rate=rate_hz)
    frames = encode_all(AudioStream(7, audio, FAKE_MODEL), chirp(0, 36_000, 24_000), *pieces)
    pcm, expected = heard(codec, frames), chirp(0, rate_hz * 3 // 2, rate_hz)
    assert len(pcm) == len(expected)
    tolerance = 0.01 + (0.02 if codec in G711 else 0.0)
    assert np.abs(pcm - expected)[200:-200].max() < tolerance


@pytest.mark.parametrize("codec", [*LINEAR, *G711, "opus"])
@pytest.mark.parametrize("rate_hz", [8000, 48000])
def test_however_the_sound_is_cut_its_bytes_are_the_same(codec, rate_hz):
    audio = dataclasses.replace(OPUS if codec == "opus" else PCM, codec=codec, sample_rate=rate_hz)
    random, mono = Random(3), chirp(0, 30_000, 24_000)
    payloads = set()
    for pieces in ((1920,), (480,), tuple(random.randrange(1, 2500) for _ in range(40))):
        frames = encode_all(AudioStream(7, audio, FAKE_MODEL), mono, *pieces)
        payloads.add(b"".join(frame.payload for frame in frames))
    assert len(payloads) == 1


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("codec", [*LINEAR, *G711, "opus"])
def test_a_tone_has_no_click_at_any_join(codec: str, rate_hz: int):
    """A sample lost, repeated or faded shows as a jump that the tone itself never makes."""
    hz, level = 200, 0.5
    audio = dataclasses.replace(OPUS if codec == "opus" else PCM, codec=codec, sample_rate=rate_hz)
    tone = (level * np.sin(2 * np.pi * hz / 24_000 * np.arange(24_000))).astype(np.float32)
    pcm = heard(codec, encode_all(AudioStream(7, audio, FAKE_MODEL), tone, 480), OPUS.pre_skip)
    clock_hz = 48_000 if codec == "opus" else rate_hz
    steepest = level * 2 * np.pi * hz / clock_hz
    rounding = 0.04 if codec in G711 else 0.002  # two half steps of the coarsest interval
    middle = slice(clock_hz // 50, -clock_hz // 50)
    assert np.abs(np.diff(pcm[middle])).max() < 1.1 * steepest + rounding


@pytest.mark.parametrize("piece", [480, 1920])
@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_opus_decodes_to_exactly_the_samples_of_the_response(rate_hz: int, piece: int):
    audio = dataclasses.replace(OPUS, sample_rate=rate_hz)
    frames = encode_all(AudioStream(7, audio, FAKE_MODEL), chirp(0, 24000, 24000), piece)
    assert sum(frame.samples for frame in frames) == 48000
    pcm, expected = heard("opus", frames, OPUS.pre_skip), chirp(0, 48000, 48000)
    assert np.corrcoef(pcm, expected)[0, 1] > 0.98
    for start in range(0, 48000, 3840):
        part = slice(start, start + 3840)
        assert np.corrcoef(pcm[part], expected[part])[0, 1] > 0.95
    for end in (slice(0, 960), slice(-960, None)):
        assert np.corrcoef(pcm[end], expected[end])[0, 1] > 0.9


def test_opus_is_fed_at_the_models_rate_where_it_can_be():
    frames = encode_all(AudioStream(7, OPUS, FAKE_MODEL), chirp(0, 24000, 24000), 1920)
    assert frames[0].samples == 3840 - OPUS.pre_skip


def test_the_first_piece_of_opus_is_decodable_when_it_leaves():
    frame = AudioStream(7, OPUS, FAKE_MODEL).encode(chirp(0, 1920, 24000)[:, None], Flags.FIRST, 0)
    assert len(unpack_packets(frame.payload)) == 4
    assert len(heard("opus", [frame], OPUS.pre_skip)) == frame.samples == 3528


@pytest.mark.parametrize("codec", [*LINEAR, *G711, "opus"])
def test_a_response_without_sound_still_has_its_end(codec):
    flags = Flags.FIRST | Flags.LAST_OF_RESPONSE
    audio = dataclasses.replace(OPUS if codec == "opus" else PCM, codec=codec)
    frame = AudioStream(7, audio, FAKE_MODEL).encode(NO_SOUND, flags, 0)
    assert (frame.samples, frame.payload, frame.pts) == (0, b"", 0)
    assert frame.flags & flags == flags


def test_a_model_of_any_rate_is_resampled_to_the_exact_length():
    model = dataclasses.replace(FAKE_MODEL, rate_hz=22050, samples_per_frame=1764)
    audio = dataclasses.replace(PCM, sample_rate=48000)
    frames = encode_all(AudioStream(7, audio, model), chirp(0, 22050, 22050), 1920)
    pcm = heard("pcm_s16le", frames)
    assert len(pcm) == 48000
    assert np.abs(pcm - chirp(0, 48000, 48000))[200:-200].max() < 0.01


def test_opus_of_a_model_at_a_rate_opus_cannot_take():
    model = dataclasses.replace(FAKE_MODEL, rate_hz=22050, samples_per_frame=1764)
    frames = encode_all(AudioStream(7, OPUS, model), chirp(0, 22050, 22050), 1764)
    assert sum(frame.samples for frame in frames) == 48000
    pcm = heard("opus", frames, OPUS.pre_skip)
    assert np.corrcoef(pcm, chirp(0, 48000, 48000))[0, 1] > 0.99


def test_floats_are_not_clipped_but_finite():
    audio = dataclasses.replace(PCM, codec="pcm_f32le")
    pcm = np.array([[1.5], [np.nan], [np.inf], [-0.25]], np.float32)
    frame = AudioStream(7, audio, FAKE_MODEL).encode(pcm, Flags.FIRST, 0)
    assert np.frombuffer(frame.payload, "<f4").tolist() == [1.5, 0.0, 1.0, -0.25]


def test_bytes_per_second_of_each_format():
    assert bytes_per_s(dataclasses.replace(PCM, codec="pcm_f32le", sample_rate=48000)) == 192_000
    assert bytes_per_s(dataclasses.replace(PCM, channels=2)) == 96_000
    assert bytes_per_s(dataclasses.replace(PCM, codec="alaw", sample_rate=8000)) == 8000
    assert bytes_per_s(dataclasses.replace(OPUS, bitrate=24_000)) == 3000
