"""The sound of a response on the wire: every sample, once, in order, with exact ends."""

import dataclasses
from itertools import pairwise

import numpy as np
import opuslib
import pytest

from engine.fake import FAKE_MODEL
from engine.index_sound import chirp, ramp, read_ramp
from realtime.protocol.frames import AudioFrame, Flags, FrameType, unpack_packets
from realtime.protocol.messages import AudioFormat
from realtime.server.audio_stream import AudioStream

PCM = AudioFormat(codec="pcm_s16le", sample_rate=24000, channels=1, frame_ms=80, frame_samples=1920)
OPUS = AudioFormat(
    codec="opus", sample_rate=48000, channels=1, frame_ms=80, frame_samples=3840, pre_skip=312
)


def encode_all(stream: AudioStream, mono: np.ndarray, piece: int) -> list[AudioFrame]:
    frames = []
    starts = range(0, len(mono), piece)
    for start in starts:
        flags = Flags.FIRST if start == 0 else Flags.NONE
        frames.append(stream.encode(mono[start : start + piece, None], flags, epoch=3))
    nothing = np.zeros((0, 1), np.float32)
    frames.append(stream.encode(nothing, Flags.LAST_OF_SEGMENT | Flags.LAST_OF_RESPONSE, epoch=3))
    return [frame for frame in frames if frame]


def check_numbering(frames: list[AudioFrame]) -> None:
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    assert frames[0].pts == 0
    assert all(a.pts + a.samples == b.pts for a, b in pairwise(frames))
    assert [Flags.FIRST in frame.flags for frame in frames] == [True] + [False] * (len(frames) - 1)
    assert [Flags.LAST_OF_RESPONSE in f.flags for f in frames] == [False] * (len(frames) - 1) + [
        True
    ]
    assert {(frame.stream, frame.epoch) for frame in frames} == {(7, 3)}


def decode_opus(frames: list[AudioFrame], pre_skip: int) -> np.ndarray:
    decoder = opuslib.Decoder(48000, 1)
    packets = [packet for frame in frames for packet in unpack_packets(frame.payload)]
    pcm = b"".join(decoder.decode(packet, 960) for packet in packets)
    total = sum(frame.samples for frame in frames)
    return np.frombuffer(pcm, "<i2")[pre_skip : pre_skip + total] / np.float32(32767)


@pytest.mark.parametrize("piece", [480, 1920])
def test_pcm_is_every_sample_exactly(piece: int):
    frames = encode_all(AudioStream(7, PCM, FAKE_MODEL), ramp(0, 19200), piece)
    check_numbering(frames)
    assert all(frame.samples * 2 == len(frame.payload) for frame in frames)
    assert {frame.type for frame in frames} == {FrameType.PCM_S16LE}
    pcm = np.frombuffer(b"".join(frame.payload for frame in frames), "<i2")
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(19200))


@pytest.mark.parametrize("piece", [480, 1920])
def test_opus_decodes_to_exactly_the_samples_of_the_response(piece: int):
    mono = chirp(0, 24000, 24000)
    frames = encode_all(AudioStream(7, OPUS, FAKE_MODEL), mono, piece)
    check_numbering(frames)
    assert frames[0].samples == piece * 2 - OPUS.pre_skip
    assert sum(frame.samples for frame in frames) == 48000
    heard, expected = decode_opus(frames, OPUS.pre_skip), chirp(0, 48000, 48000)
    assert np.corrcoef(heard, expected)[0, 1] > 0.99
    for end in (slice(0, 960), slice(-960, None)):
        assert np.corrcoef(heard[end], expected[end])[0, 1] > 0.9


def test_the_first_piece_of_opus_is_decodable_when_it_leaves():
    frame = AudioStream(7, OPUS, FAKE_MODEL).encode(chirp(0, 1920, 24000)[:, None], Flags.FIRST, 0)
    assert len(unpack_packets(frame.payload)) == 4
    assert len(decode_opus([frame], OPUS.pre_skip)) == frame.samples == 3528


def test_a_response_without_sound_still_has_its_end():
    flags = Flags.FIRST | Flags.LAST_OF_RESPONSE
    for audio in (PCM, OPUS):
        frame = AudioStream(7, audio, FAKE_MODEL).encode(np.zeros((0, 1), np.float32), flags, 0)
        assert (frame.samples, frame.payload, frame.pts) == (0, b"", 0)
        assert frame.flags & flags == flags


@pytest.mark.parametrize(("model_hz", "stream_hz"), [(24000, 16000), (22050, 48000)])
def test_another_rate_is_resampled_to_the_exact_length(model_hz: int, stream_hz: int):
    model = dataclasses.replace(FAKE_MODEL, rate_hz=model_hz, samples_per_frame=model_hz * 8 // 100)
    audio = dataclasses.replace(PCM, sample_rate=stream_hz)
    frames = encode_all(AudioStream(7, audio, model), chirp(0, model_hz, model_hz), 1920)
    check_numbering(frames)
    pcm = np.frombuffer(b"".join(frame.payload for frame in frames), "<i2") / np.float32(32767)
    assert len(pcm) == stream_hz
    assert np.abs(pcm - chirp(0, stream_hz, stream_hz))[200:-200].max() < 0.01


def test_opus_of_a_model_at_a_rate_opus_cannot_take():
    model = dataclasses.replace(FAKE_MODEL, rate_hz=22050, samples_per_frame=1764)
    frames = encode_all(AudioStream(7, OPUS, model), chirp(0, 22050, 22050), 1764)
    check_numbering(frames)
    assert sum(frame.samples for frame in frames) == 48000
    heard = decode_opus(frames, OPUS.pre_skip)
    assert np.corrcoef(heard, chirp(0, 48000, 48000))[0, 1] > 0.99
