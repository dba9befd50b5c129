"""Frames become sound in chunks that rows share, for codecs of any release: [samples, channels]."""

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.codec.codec import AudioCodec, load_codec
from engine.codec.dispatch import CodecStage
from engine.codec.stream import DecoderStream

VECTORS = Path(__file__).parents[2] / "vectors" / "codec"
RAMP = (1, 4, 15)


@pytest.fixture(scope="module", params=["v1", "v2", "nano"])
def codec(request) -> AudioCodec:
    return load_codec(VECTORS / request.param / "tiny")


@pytest.fixture(scope="module")
def codes(codec) -> np.ndarray:
    """Codes of four rows, [4, 60, n_codebooks]."""
    size = (4, 60, codec.config.n_codebooks)
    return np.random.default_rng(8).integers(0, codec.config.codebook_size, size)


@pytest.fixture(scope="module")
def whole(codec, codes) -> np.ndarray:
    """Their sound [4, samples, channels]."""
    sound = codec.decode(torch.from_numpy(codes).permute(2, 0, 1))
    return sound.transpose(1, 2).numpy()


class Stage:
    """A stage, the sizes of its calls, and the sound of each row."""

    def __init__(self, codec: AudioCodec, slots: int = 4) -> None:
        self.calls: list[tuple[int, int]] = []  # rows, frames
        self.sound: dict[int, list[np.ndarray]] = {}
        stream = DecoderStream(codec, slots, max_chunk_frames=max(RAMP))
        step = stream.step

        def counted(slots, codes):
            self.calls.append((len(slots), codes.shape[1]))
            return step(slots, codes)

        stream.step = counted
        self.stage = CodecStage(
            stream,
            slots,
            codebook_size=codec.config.codebook_size,
            rate_hz=codec.config.sample_rate,
            ramp_frames=RAMP,
            deterministic=False,
        )

    def run(self) -> None:
        """Run until nothing is left to do; nobody runs dry."""
        before = -1
        while before != (before := len(self.calls)):
            for event in self.stage.run(next_frame_ms=-1e9):
                self.sound.setdefault(event.row, []).append(event.pcm)

    def say(self, row: int, codes: np.ndarray) -> None:
        """Push all frames [F, n_vq] of an open row, after which none follows."""
        for frame in codes:
            self.stage.push(row, frame)
        self.stage.finish(row)

    def heard(self, row: int) -> np.ndarray:
        return np.concatenate(self.sound[row])


def nothing(codec):
    return np.zeros((0, codec.config.n_codebooks), np.uint16)


def assert_close(got, want):
    np.testing.assert_allclose(got, want, atol=2e-4, rtol=1e-4)


def test_rows_that_speak_at_once_share_calls_and_sound_as_if_alone(codec, codes, whole):
    stage = Stage(codec)
    for row in range(4):
        stage.stage.open(row, nothing(codec))
    for frame in range(47):
        for row in range(4):
            stage.stage.push(row, codes[row, frame])
        stage.run()
    for row in range(4):
        stage.stage.finish(row)
    stage.run()
    assert stage.calls == [(4, 1), (4, 4), (4, 15), (4, 15), (4, 12)]
    samples = 47 * codec.config.samples_per_frame
    for row in range(4):
        assert stage.heard(row).shape == (samples, codec.config.channels)
        assert_close(stage.heard(row), whole[row, :samples])


def test_rows_of_other_lengths_share_what_calls_they_can(codec, codes, whole):
    stage, lengths = Stage(codec), {0: 33, 1: 13, 2: 1}
    for row, frames in lengths.items():
        stage.stage.open(row, nothing(codec))
        stage.say(row, codes[row, :frames])
    stage.run()
    assert stage.calls == [(3, 1), (2, 4), (1, 15), (1, 8), (1, 13)]
    for row, frames in lengths.items():
        assert_close(stage.heard(row), whole[row, : frames * codec.config.samples_per_frame])


@pytest.mark.parametrize(
    ("same_slot", "calls"), [(True, [1, 4, 8]), (False, [15, 2, 1, 4, 8])], ids=["kept", "replayed"]
)
def test_the_next_reply_goes_on_where_the_dialogue_was(codec, codes, whole, same_slot, calls):
    """17 of 20 frames were heard: the slot goes back to there, or decodes them again unheard."""
    stage = Stage(codec)
    if same_slot:
        stage.stage.open(1, nothing(codec))
        stage.say(1, codes[0, :20])
        stage.run()
        stage.stage.close(1)
    stage.calls.clear()
    stage.stage.open(2, codes[0, :17].astype(np.uint16))
    stage.say(2, codes[0, 17:30])
    stage.run()
    per_frame = codec.config.samples_per_frame
    assert [frames for _, frames in stage.calls] == calls
    assert_close(stage.heard(2), whole[0, 17 * per_frame : 30 * per_frame])


def test_a_frame_without_sound_has_no_samples_on_any_channel(codec):
    stage = Stage(codec)
    stage.stage.open(5, nothing(codec))
    stage.stage.push(5, np.full(codec.config.n_codebooks, codec.config.codebook_size))
    [event] = stage.stage.run(next_frame_ms=0.0)
    assert event.pcm.shape == (0, codec.config.channels)
    assert event.valid.tolist() == [False]
    assert stage.calls == []


def test_warm_up_leaves_no_trace(codec, codes, whole):
    stage = Stage(codec)
    stage.stage.warm_up(max_rows=4)
    assert stage.calls == [(rows, frames) for frames in RAMP for rows in (1, 2, 4)]
    stage.stage.open(1, nothing(codec))
    stage.say(1, codes[0, :20])
    stage.run()
    assert_close(stage.heard(1), whole[0, : 20 * codec.config.samples_per_frame])
