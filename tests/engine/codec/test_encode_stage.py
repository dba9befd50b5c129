"""Encoding as sound arrives: any cutting and any company give the codes of the whole clip."""

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.api import Encode, Encoded, Failed
from engine.codec.codec import load_codec
from engine.codec.reference import EncodeStage, normalise_loudness
from engine.codec.stream import EncoderStream

FAULT, FRAMES_BEFORE_THE_FAULT = 77.0, 7
VECTORS = Path(__file__).parents[2] / "vectors" / "codec"


@pytest.fixture(scope="module")
def codec():
    return load_codec(VECTORS / "v1" / "tiny")


@pytest.fixture(scope="module", params=["v2", "nano"])
def stereo(request):
    return load_codec(VECTORS / request.param / "tiny")


class Stage:
    """A stage with four slots, the sizes of its calls, and what came of each stream."""

    def __init__(self, codec, slots: int = 4, **options) -> None:
        self.calls: list[int] = []
        self.events: list[Encoded | Failed] = []
        self.frame = codec.config.samples_per_frame
        encoder = EncoderStream(codec, slots)
        step = encoder.step

        def counted(slots, wav):
            self.calls.append(len(slots))
            return step(slots, wav)

        encoder.step = counted
        self.stage = EncodeStage(
            encoder,
            slots,
            samples_per_frame=self.frame,
            n_vq=codec.config.n_codebooks,
            **options,
        )

    def add(self, stream: int, pcm, *, end: bool = False, loudness: str = "keep") -> None:
        self.stage.add(Encode(stream, "", np.asarray(pcm, np.float32), end, loudness))

    def run(self) -> list[Encoded | Failed]:
        """Run until nothing is left to do."""
        before = len(self.events)
        while events := self.stage.run():
            self.events += events
        return self.events[before:]

    def codes(self, stream: int) -> np.ndarray:
        mine = [e for e in self.events if isinstance(e, Encoded) and e.stream == stream]
        firsts = np.cumsum([0, *(len(event.codes) for event in mine)])
        assert [event.first_frame for event in mine] == firsts[:-1].tolist()
        assert [event.end for event in mine] == [False] * (len(mine) - 1) + [True]
        return np.concatenate([event.codes for event in mine])


def clip(codec, frames: float, seed: int = 0) -> np.ndarray:
    samples = int(frames * codec.config.samples_per_frame)
    return (0.1 * np.random.default_rng(seed).standard_normal(samples)).astype(np.float32)


def stereo_clip(codec, frames: float, seed: int = 0) -> np.ndarray:
    return np.stack([clip(codec, frames, seed), 0.3 * clip(codec, frames, seed + 100)], axis=1)


def whole(codec, pcm: np.ndarray) -> np.ndarray:
    """Codes of a clip that is all there, mono or [samples, channels]."""
    codes, lengths = codec.encode(torch.from_numpy(pcm.reshape(len(pcm), -1).T)[None])
    return codes[:, 0, : lengths[0]].T.numpy().astype(np.uint16)


@pytest.mark.parametrize("deterministic", [False, True])
def test_streams_side_by_side_give_the_codes_of_their_clips(codec, deterministic):
    stage = Stage(codec, deterministic=deterministic)
    clips = {n: clip(codec, frames, n) for n, frames in enumerate((31.5, 6, 17, 0.5), start=1)}
    at = dict.fromkeys(clips, 0)
    for step in (100, 7 * stage.frame, 1000, 1, 1 << 20):
        for stream, pcm in clips.items():
            ended = at[stream] == len(pcm)
            part = pcm[at[stream] : at[stream] + step]
            at[stream] += len(part)
            if not ended:
                stage.add(stream, part, end=at[stream] == len(pcm))
        stage.run()
    for stream, pcm in clips.items():
        np.testing.assert_array_equal(stage.codes(stream), whole(codec, pcm))
    assert stage.stage.open == 0


def test_a_user_is_encoded_every_six_frames_while_speaking(codec):
    stage = Stage(codec)
    stage.add(1, clip(codec, 5.9))
    assert stage.run() == []
    stage.add(1, clip(codec, 7))
    assert [len(event.codes) for event in stage.run()] == [6, 6]
    stage.add(1, [], end=True)
    [last] = stage.run()
    assert (len(last.codes), last.end) == (0, True)


def test_a_clip_to_normalise_is_encoded_once_it_is_whole(codec):
    stage, pcm = Stage(codec), clip(codec, 30)
    stage.add(1, pcm[:-10], loudness="normalise")
    assert stage.run() == []
    stage.add(1, pcm[-10:], end=True, loudness="normalise")
    assert [len(event.codes) for event in stage.run()] == [12, 12, 6]
    np.testing.assert_array_equal(stage.codes(1), whole(codec, normalise_loudness(pcm)))


def test_users_who_speak_at_once_share_calls(codec):
    stage = Stage(codec)
    for stream in range(3):
        stage.add(stream, clip(codec, 12, stream))
    stage.run()
    assert stage.calls == [3, 3]


def test_complete_clips_are_never_kept_waiting_by_users(codec):
    """Users hold all slots but one for as long as they like."""
    stage = Stage(codec)
    users = {stream: clip(codec, 6, stream) for stream in range(1, 6)}
    for stream, pcm in users.items():
        stage.add(stream, pcm)
    stage.run()
    assert {event.stream for event in stage.events} == {1, 2, 3}
    voice = clip(codec, 20, 9)
    stage.add(9, voice, end=True)
    stage.run()
    np.testing.assert_array_equal(stage.codes(9), whole(codec, voice))
    for stream in users:
        stage.add(stream, [], end=True)
    stage.run()
    for stream, pcm in users.items():
        np.testing.assert_array_equal(stage.codes(stream), whole(codec, pcm))


def test_a_stream_that_is_cancelled_gives_its_slot_to_the_next(codec):
    stage, pcm = Stage(codec, slots=2), clip(codec, 6)
    stage.add(1, clip(codec, 6, 5))
    stage.add(2, pcm)
    stage.run()
    stage.stage.cancel(1)
    stage.stage.cancel(77)
    stage.run()
    stage.add(2, [], end=True)
    stage.run()
    np.testing.assert_array_equal(stage.codes(2), whole(codec, pcm))


def test_stereo_streams_side_by_side_give_the_codes_of_their_clips(stereo):
    stage = Stage(stereo)
    clips = {n: stereo_clip(stereo, frames, n) for n, frames in enumerate((13.5, 12, 6.2))}
    for begin in range(0, 14 * stage.frame, 500):
        for stream, pcm in clips.items():
            if begin < len(pcm):
                stage.add(stream, pcm[begin : begin + 500], end=begin + 500 >= len(pcm))
        stage.run()
    assert max(stage.calls) == 3
    for stream, pcm in clips.items():
        np.testing.assert_array_equal(stage.codes(stream), whole(stereo, pcm))


def test_mono_sound_goes_to_both_channels(stereo):
    stage, pcm = Stage(stereo), clip(stereo, 9)
    stage.add(1, pcm[:700])
    stage.add(1, pcm[700:], end=True)
    stage.run()
    np.testing.assert_array_equal(stage.codes(1), whole(stereo, np.stack([pcm, pcm], axis=1)))
    assert not np.array_equal(stage.codes(1), whole(stereo, np.stack([pcm, 0 * pcm], axis=1)))


def test_loudness_keeps_the_balance_of_the_channels(stereo):
    pcm = stereo_clip(stereo, 12)
    power = np.mean(np.square(pcm, dtype=np.float64))
    gain = 10 ** (np.clip(-20 - 10 * np.log10(power + 1e-9), -3, 3) / 20)
    np.testing.assert_allclose(normalise_loudness(pcm), pcm * gain, rtol=1e-6)
    assert gain > 1.1
    stage = Stage(stereo)
    stage.add(1, pcm, end=True, loudness="normalise")
    stage.run()
    np.testing.assert_array_equal(stage.codes(1), whole(stereo, normalise_loudness(pcm)))


@pytest.mark.parametrize("shape", [(100, 3), (100, 1), (2, 100), (1, 100, 2)])
def test_sound_of_other_channels_fails_its_stream_alone(stereo, shape):
    stage, pcm = Stage(stereo, slots=2), stereo_clip(stereo, 12)
    stage.add(1, pcm[: 6 * stage.frame])
    stage.add(2, pcm, end=True)
    stage.stage.run()
    stage.add(1, np.zeros(shape))
    events = stage.run()
    [failed] = [event for event in events if isinstance(event, Failed)]
    given = str(list(shape))
    assert (failed.what, failed.id) == ("encode", "1")
    assert failed.error == (f"ValueError: pcm is {given}, expected mono [samples] or [samples, 2]")
    assert stage.stage.open == 0
    stage.add(3, pcm, end=True)
    stage.run()
    np.testing.assert_array_equal(stage.codes(3), whole(stereo, pcm))


def test_a_failure_ends_its_streams_and_frees_their_slots(codec):
    stage, pcm = Stage(codec, slots=2), clip(codec, 6)
    stage.add(1, np.stack([pcm, pcm], axis=1), end=True)  # two channels
    [failed] = stage.run()
    assert isinstance(failed, Failed)
    assert (failed.what, failed.id) == ("encode", "1")
    for stream in (2, 3):
        stage.add(stream, pcm, end=True)
    stage.run()
    for stream in (2, 3):
        np.testing.assert_array_equal(stage.codes(stream), whole(codec, pcm))


def test_a_clip_that_cannot_be_encoded_fails_alone(codec):
    """Its company is encoded again without it."""
    stage, clips = Stage(codec), [clip(codec, 20, seed) for seed in range(3)]
    clips[1][FRAMES_BEFORE_THE_FAULT * stage.frame] = FAULT
    encoder = stage.stage._encoder
    step = encoder.step

    def picky(slots, wav):
        if (wav == FAULT).any():
            raise RuntimeError("no such sound")
        return step(slots, wav)

    encoder.step = picky
    for stream, pcm in enumerate(clips):
        stage.add(stream, pcm, end=True)
    failed = [event for event in stage.run() if isinstance(event, Failed)]
    assert [(event.id, event.error) for event in failed] == [("1", "RuntimeError: no such sound")]
    for stream in (0, 2):
        np.testing.assert_array_equal(stage.codes(stream), whole(codec, clips[stream]))
    assert stage.stage.open == 0
