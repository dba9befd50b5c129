"""Sound and codes that a codec cannot take: an error that says why, and no stream has moved."""

import re
from pathlib import Path

import pytest
import torch

from engine.codec.codec import AudioCodec, load_codec
from engine.codec.stream import DecoderStream, EncoderStream

VECTORS = Path(__file__).parents[2] / "vectors" / "codec"


@pytest.fixture(scope="module")
def v1() -> AudioCodec:
    return load_codec(VECTORS / "v1" / "tiny")


@pytest.fixture(scope="module")
def nano() -> AudioCodec:
    return load_codec(VECTORS / "nano" / "tiny")


def test_refused_clips(v1, nano):
    with pytest.raises(ValueError, match=r"wav is \[1, 2, 96\], expected \[B, 1, T\]"):
        v1.encode(torch.zeros(1, 2, 96))
    with pytest.raises(ValueError, match=r"wav is \[1, 1, 96\], expected \[B, 2, T\]"):
        nano.encode(torch.zeros(1, 1, 96))
    with pytest.raises(ValueError, match="n_codebooks is 0, the codec has 32"):
        v1.encode(torch.zeros(1, 1, 96), n_codebooks=0)
    with pytest.raises(ValueError, match="n_codebooks is 17, the codec has 16"):
        nano.encode(torch.zeros(1, 2, 96), n_codebooks=17)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([97, 0], r"lengths are \[97, 0\], expected 2 of 0\.\.96 samples"),
        ([96, -1], r"lengths are \[96, -1\]"),
        ([96], r"lengths are \[96\], expected 2"),
    ],
)
def test_refused_lengths(v1, lengths, message):
    with pytest.raises(ValueError, match=message):
        v1.encode(torch.zeros(2, 1, 96), torch.tensor(lengths))


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (
            torch.full((16, 2, 3), 64),
            r"code 64 of codebook 0, frame 0, row 0 is not one of 0\.\.63",
        ),
        (torch.full((16, 2, 3), -1), r"code -1 of codebook 0, frame 0, row 0"),
        (torch.zeros(17, 1, 3, dtype=torch.int64), "of 17 codebooks, the codec has 16"),
        (torch.zeros(0, 1, 3, dtype=torch.int64), "of 0 codebooks, the codec has 16"),
        (torch.zeros(16, 3, dtype=torch.int64), r"codes are \[16, 3\], expected \[K, B, F\]"),
        (torch.zeros(16, 1, 3), r"codes are torch\.float32, expected whole numbers"),
        (torch.zeros(16, 1, 3, dtype=torch.bool), r"codes are torch\.bool"),
    ],
)
def test_refused_codes(nano, codes, message):
    with pytest.raises(ValueError, match=message):
        nano.decode(codes)


@pytest.mark.parametrize(
    ("slots", "shape", "message"),
    [
        ([0, 0], (2, 1, 32), r"twice in one call: \[0, 0\]"),
        ([3], (1, 1, 32), r"slot 3 is not one of 0\.\.1"),
        ([-1], (1, 1, 32), r"slot -1 is not one of 0\.\.1"),
        ([0], (1, 16, 32), r"1 to 15 frames, not 16"),
        ([0], (1, 0, 32), r"1 to 15 frames, not 0"),
        ([0], (1, 1, 33), r"codes are \[1, 1, 33\], expected \[1, n, 1\.\.32\]"),
        ([0], (1, 1, 0), r"codes are \[1, 1, 0\], expected \[1, n, 1\.\.32\]"),
        ([0, 1], (1, 1, 32), r"expected \[2, n, 1\.\.32\]"),
        ([0], (1, 32), r"codes are \[1, 32\], expected \[1, n, 1\.\.32\]"),
    ],
)
def test_refused_calls(v1, slots, shape, message):
    stream = DecoderStream(v1, 2)
    with pytest.raises(ValueError, match=message):
        stream.step(slots, torch.zeros(shape, dtype=torch.int64))
    assert stream.frames(0) == 0


def test_refused_encoder_calls(v1, nano):
    for codec, channels, shapes in (
        (v1, 1, [(1, 1, 97), (1, 2, 96), (1, 96)]),
        (nano, 2, [(1, 2, 97), (1, 1, 96), (2, 2, 96)]),
    ):
        stream = EncoderStream(codec, 1)
        for shape in shapes:
            given = re.escape(str(list(shape)))
            wrong = rf"wav is {given}, expected \[1, {channels}, a multiple of 96\]"
            with pytest.raises(ValueError, match=wrong):
                stream.step([0], torch.zeros(shape))
    with pytest.raises(ValueError, match="n_codebooks is 33, the codec has 32"):
        EncoderStream(v1, 1, n_codebooks=33)
