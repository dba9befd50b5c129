"""Streams: any cutting, any batch mates, slots that rest, go back and begin anew."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from engine.codec.attention import Ring
from engine.codec.codec import AudioCodec, load_codec
from engine.codec.config import TransformerConfig
from engine.codec.stream import DecoderStream, EncoderStream

VECTORS = Path(__file__).parents[2] / "vectors" / "codec"
FRAMES = 150


@pytest.fixture(scope="module", params=["v1", "v2", "nano"])
def codec(request) -> AudioCodec:
    return load_codec(VECTORS / request.param / "tiny")


@pytest.fixture(scope="module")
def codes(codec) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    size, books = codec.config.codebook_size, codec.config.n_codebooks
    return torch.randint(size, (4, FRAMES, books), generator=generator)


@pytest.fixture(scope="module")
def whole(codec, codes) -> torch.Tensor:
    return codec.decode(codes.permute(2, 0, 1)).transpose(1, 2)


def assert_close(got, want):
    torch.testing.assert_close(got, want, atol=2e-4, rtol=1e-4)


def samples(sound, codec, first, last):
    return sound[first * codec.config.samples_per_frame : last * codec.config.samples_per_frame]


def feed(stream, slot, codes, chunks):
    """Step one slot through consecutive chunks of `codes` [F, K] from its current frame."""
    sound = []
    for frames in chunks:
        first = stream.frames(slot)
        sound.append(stream.step([slot], codes[None, first : first + frames])[0])
    return torch.cat(sound) if sound else None


def slot_state(stream, slot):
    rings = [ring.kv.unflatten(1, (-1, ring.capacity))[:, slot] for ring in stream.pool.rings]
    return [stream.frames(slot), *(ring.clone() for ring in rings)]


def assert_same_state(got, want):
    assert got[0] == want[0]
    assert all(torch.equal(*pair) for pair in zip(got[1:], want[1:], strict=True))


STEP = st.tuples(st.integers(1, 15), st.sampled_from([0, 0, 1, 7, 50]))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(steps=st.lists(STEP, min_size=1, max_size=16))
def test_any_cutting_with_any_steps_back_equals_whole(codec, codes, whole, steps):
    stream = DecoderStream(codec, 2)
    for frames, back_frames in steps:
        first = max(0, stream.frames(0) - back_frames)
        if stream.can_rewind(0, first):
            stream.rewind(0, first)
        first = stream.frames(0)
        if first + frames <= FRAMES:
            sound = feed(stream, 0, codes[0], [frames])
            assert_close(sound, samples(whole[0], codec, first, first + frames))


def test_encoding_in_any_pieces_equals_whole(codec, whole):
    wav = whole[:2].transpose(1, 2) / whole.abs().max()
    want, _ = codec.encode(wav)
    stream = EncoderStream(codec, 3)
    sizes = [1, 4, 15, 15, 12, 7, 6, 15, 15, 15, 15, 15, 15]
    assert sum(sizes) == FRAMES
    pieces = wav.split([size * codec.config.samples_per_frame for size in sizes], dim=-1)
    got = torch.cat([stream.step([2, 0], piece) for piece in pieces], 1)
    assert torch.equal(got.permute(2, 0, 1), want)
    assert (stream.frames(2), stream.frames(1)) == (FRAMES, 0)


def test_slots_at_different_positions_decode_in_one_call(codec, codes, whole):
    stream = DecoderStream(codec, 5)
    starts = {4: [], 1: [15, 15, 7], 2: [15] * 6 + [11]}
    for row, (slot, chunks) in enumerate(starts.items()):
        feed(stream, slot, codes[row], chunks)
    for _ in range(3):
        chunk = [codes[row, stream.frames(slot) :][:11] for row, slot in enumerate(starts)]
        sound = stream.step(list(starts), torch.stack(chunk))
        for row, slot in enumerate(starts):
            end = stream.frames(slot)
            assert_close(sound[row], samples(whole[row], codec, end - 11, end))


def test_inactive_slots_are_untouched(codec, codes):
    stream = DecoderStream(codec, 4)
    for slot in range(4):
        feed(stream, slot, codes[slot], [15, 15, 3 + slot])
    before = [slot_state(stream, slot) for slot in range(4)]
    padding = [stream.scratch_slot] * 2
    stream.step([2, *padding], codes[:3, 60:75])
    for slot in (0, 1, 3):
        assert_same_state(slot_state(stream, slot), before[slot])
    assert not torch.equal(slot_state(stream, 2)[1], before[2][1])


def test_padding_rows_change_nothing_audible(codec, codes, whole):
    stream = DecoderStream(codec, 2)
    for first in (0, 15, 30):
        batch = torch.cat([codes[:1, first : first + 15], codes[1:, :15] * 0])
        sound = stream.step([1] + [stream.scratch_slot] * 3, batch)
        assert_close(sound[0], samples(whole[0], codec, first, first + 15))


def test_going_back_continues_sample_exactly(codec, codes):
    heard = [1, 4, 15, 15]
    stream, fresh = DecoderStream(codec, 1), DecoderStream(codec, 1)
    feed(stream, 0, codes[0], [*heard, 15, 15, 15])
    stream.rewind(0, sum(heard))
    feed(fresh, 0, codes[0], heard)
    other = codes[1]
    assert torch.equal(feed(stream, 0, other, [4, 15, 1]), feed(fresh, 0, other, [4, 15, 1]))


def test_the_furthest_step_back(codec, codes, whole):
    stream = DecoderStream(codec, 1)
    feed(stream, 0, codes[0], [15] * 9)
    assert stream.can_rewind(0, 135 - 65)
    assert not stream.can_rewind(0, 135 - 66)
    assert not stream.can_rewind(0, 136)
    with pytest.raises(ValueError, match=r"slot 0 from frame 135 to 69.*begins at frame 70"):
        stream.rewind(0, 69)
    stream.rewind(0, 70)
    assert_close(feed(stream, 0, codes[0], [15]), samples(whole[0], codec, 70, 85))
    # Frame 71 is within 50 of frame 85, and still there; frame 69's window is not.
    assert stream.can_rewind(0, 71)
    assert not stream.can_rewind(0, 69)


@pytest.mark.parametrize(
    ("codec", "windows", "tokens_per_frame"),
    [
        ("v1", [20, 40, 80, 160], [1, 2, 4, 8]),
        ("v2", [20, 40, 80, 160, 240, 400], [1, 2, 4, 8, 16, 32]),
        ("nano", [80, 120, 160, 240], [4, 8, 16, 32]),
    ],
    indirect=["codec"],
)
def test_capacity_is_window_and_largest_chunk_and_rollback(codec, windows, tokens_per_frame):
    pool = DecoderStream(codec, 1, max_chunk_frames=15, rollback_frames=50).pool
    want = [window + 65 * rate for window, rate in zip(windows, tokens_per_frame, strict=True)]
    assert [ring.capacity for ring in pool.rings] == want


@pytest.mark.parametrize("semantics", ["exact", "chunk_complete"])
def test_reset_is_complete(codec, codes, semantics):
    used, fresh = (DecoderStream(codec, 2, semantics=semantics) for _ in range(2))
    feed(used, 1, codes[1], [15] * 10)
    used.reset(1)
    for chunk in (1, 4, 15, 15, 15, 15, 15):
        assert torch.equal(feed(used, 1, codes[0], [chunk]), feed(fresh, 1, codes[0], [chunk]))


def test_reset_forgets_sound_that_was_not_a_number(codec, whole):
    wav = whole[:1, : 15 * codec.config.samples_per_frame].transpose(1, 2)
    used, fresh = EncoderStream(codec, 1), EncoderStream(codec, 1)
    for _ in range(10):
        used.step([0], wav * float("nan"))
    used.reset(0)
    for _ in range(10):
        assert torch.equal(used.step([0], wav), fresh.step([0], wav))
    assert all(ring.kv[:, : ring.capacity].isfinite().all() for ring in used.pool.rings)


class Work(TorchDispatchMode):
    """Counts tensor operations and the elements they return."""

    def __init__(self):
        super().__init__()
        self.operations = []
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.operations.append(str(func))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            self.elements += tensor.numel() if isinstance(tensor, torch.Tensor) else 0
        return out


def work_of(stream, slots, codes):
    with Work() as work:
        stream.step(slots, codes)
    assert len(work.operations) > 100
    return work


@pytest.mark.parametrize("frames", [1, 15])
def test_work_does_not_grow_with_position(codec, codes, frames):
    stream, work = DecoderStream(codec, 1), {}
    for step in range(70):
        stream.step([0], codes[:1, :15])
        if stream.frames(0) in (210, 1005):
            work[stream.frames(0)] = work_of(stream, [0], codes[:1, :frames])
            stream.rewind(0, 15 * (step + 1))
    early, late = work.values()
    assert early.operations == late.operations
    assert early.elements == late.elements


def test_operations_do_not_grow_with_slots(codec, codes):
    stream = DecoderStream(codec, 4)
    solo = work_of(stream, [0], codes[:1, :4])
    batch = work_of(stream, [0, 1, 2, 3], codes[:, :4])
    assert solo.operations == batch.operations
    assert batch.elements <= 4 * solo.elements


def test_a_token_that_sees_nothing_gets_zero():
    # chunk_complete, and a chunk longer than the window: its first tokens have been overwritten.
    config = TransformerConfig(
        input_dim=8,
        output_dim=8,
        d_model=8,
        heads=2,
        layers=1,
        ff_dim=8,
        max_period=10_000,
        window_tokens=3,
        tokens_per_frame=1,
    )
    ring = Ring(
        config,
        1,
        5,
        semantics="chunk_complete",
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    attention = ring.at(torch.tensor([0]), torch.tensor([7]), 5)
    out = attention(0, torch.ones(1, 5, 3, 2, 4))
    assert torch.equal(out[0, :2], torch.zeros(2, 8))
    assert torch.equal(out[0, 2:], torch.ones(3, 8))


@pytest.mark.parametrize("code", [-1, 64])
def test_a_code_outside_the_codebook_advances_nothing(codec, codes, whole, code):
    stream = DecoderStream(codec, 2)
    feed(stream, 0, codes[0], [4])
    feed(stream, 1, codes[1], [1])
    wrong = codes[:2, :3].clone()
    wrong[1, 2, 5] = code
    with pytest.raises(ValueError, match=rf"code {code} of codebook 5, frame 2, row 1 .* 0\.\.63"):
        stream.step([0, 1], wrong)
    assert (stream.frames(0), stream.frames(1)) == (4, 1)
    assert_close(feed(stream, 0, codes[0], [15]), samples(whole[0], codec, 4, 19))
