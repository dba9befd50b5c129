"""Which frames leave in which chunk, and in which slot they are decoded."""

from __future__ import annotations

import types
from pathlib import Path

import numpy as np
import pytest

from engine.codec import dispatch
from engine.codec.codec import load_codec
from engine.codec.dispatch import CodecStage
from engine.codec.stream import DecoderStream
from engine.config import EngineConfig

TINY = Path(__file__).parents[2] / "vectors" / "codec" / "v1" / "tiny"


@pytest.fixture(scope="module")
def codec():
    return load_codec(TINY)


@pytest.fixture(scope="module")
def codes(codec):
    size = (40, codec.config.n_codebooks)
    return np.random.default_rng(3).integers(0, codec.config.codebook_size, size)


def new_stage(codec, ramp, slots=4, *, deterministic=True):
    """A stage; if `deterministic` its chunks leave only when they are full, or at the end."""
    return CodecStage(
        DecoderStream(codec, slots, max_chunk_frames=max(ramp)),
        slots,
        codebook_size=codec.config.codebook_size,
        rate_hz=codec.config.sample_rate,
        ramp_frames=ramp,
        deterministic=deterministic,
    )


def speak(stage, codes, rows, order):
    """The chunks of each row, which gets its next frame whenever it is named in `order`."""
    chunks = {row: [] for row in rows}
    given = dict.fromkeys(rows, 0)
    for row in rows:
        stage.open(row, codes[:0].astype(np.uint16))

    def run():
        while events := stage.run(next_frame_ms=0.0):
            for event in events:
                chunks[event.row].append(event.codes)

    for row in order:
        stage.push(row, codes[given[row]])
        given[row] += 1
        run()
    for row in rows:
        stage.finish(row)
    run()
    assert given == dict.fromkeys(rows, len(codes))
    return chunks


@pytest.mark.parametrize(
    ("ramp", "sizes"),
    [((1, 15), [1, 15, 15, 9]), ((1, 2, 4, 8, 15), [1, 2, 4, 8, 15, 10]), ((40,), [40])],
)
def test_forty_frames_leave_as_the_ramp_says(codec, codes, ramp, sizes):
    chunks = speak(new_stage(codec, ramp), codes, [1], [1] * 40)[1]
    assert [len(chunk) for chunk in chunks] == sizes
    np.testing.assert_array_equal(np.concatenate(chunks), codes)


def test_each_row_has_its_own_place_on_the_ramp(codec, codes):
    order = np.random.default_rng(1).permutation([1] * 40 + [2] * 40)
    chunks = speak(new_stage(codec, (1, 4, 15)), codes, [1, 2], order.tolist())
    for row in (1, 2):
        assert [len(chunk) for chunk in chunks[row]] == [1, 4, 15, 15, 5]


def test_an_end_with_nothing_pending_decodes_nothing(codec, codes):
    stage = new_stage(codec, (1, 4, 15))
    stage.open(1, codes[:0].astype(np.uint16))
    stage.push(1, codes[0])
    assert len(stage.run(0.0)) == 1
    stage.finish(1)
    assert stage.run(0.0) == []
    assert stage.is_drained(1)


def test_slots_are_taken_in_the_order_in_which_they_were_left(codec, codes):
    """So that a dialogue finds its own again as late as possible."""
    stage = new_stage(codec, (1,), slots=3)
    taken = []
    reset = stage._stream.reset
    stage._stream.reset = lambda slot: (taken.append(slot), reset(slot))
    for row in (1, 2, 3):
        stage.open(row, codes[:0].astype(np.uint16))
    for row in (2, 3, 1):
        stage.close(row)
    for row in (4, 5, 6):
        stage.open(row, codes[:0].astype(np.uint16))
    assert taken[3:] == [taken[1], taken[2], taken[0]]


@pytest.mark.parametrize("ramp", [(0, 4), (1, -4, 15), (1.5,), ("4",), (True,)])
def test_a_ramp_that_cannot_be_is_named(ramp):
    with pytest.raises(ValueError, match="chunk_ramp_frames"):
        EngineConfig("model", "codec", chunk_ramp_frames=ramp)


def heard_as_it_is_made(codec, codes, monkeypatch, frame_ms, *, deterministic=False):
    """Sizes of the chunks of a reply, and how long its listener heard nothing in the midst of it.

    Each frame takes `frame_ms` to make; the listener plays from the first sound on.
    """
    now_ms = 0.0
    clock = types.SimpleNamespace(
        monotonic=lambda: now_ms / 1e3, monotonic_ns=lambda: round(now_ms * 1e6)
    )
    monkeypatch.setattr(dispatch, "time", clock)
    stage = new_stage(codec, (1, 4, 15), deterministic=deterministic)
    stage.open(1, codes[:0].astype(np.uint16))
    sizes, silent_ms, dry_at_ms = [], 0.0, None
    for frame in codes:
        now_ms += frame_ms
        stage.push(1, frame)
        for event in stage.run(next_frame_ms=frame_ms):
            dry_at_ms = now_ms if dry_at_ms is None else dry_at_ms
            silent_ms += max(0.0, now_ms - dry_at_ms)
            dry_at_ms = max(now_ms, dry_at_ms) + 1e3 * len(event.pcm) / codec.config.sample_rate
            sizes.append(len(event.codes))
    return sizes, silent_ms


@pytest.mark.parametrize("speed", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_no_listener_runs_dry_while_the_engine_is_faster_than_sound(
    codec, codes, monkeypatch, speed
):
    frame_ms = 1e3 * codec.config.samples_per_frame / codec.config.sample_rate
    sizes, silent_ms = heard_as_it_is_made(codec, codes, monkeypatch, speed * frame_ms)
    assert sizes[0] == 1  # and the first frame is not held back for it
    assert silent_ms == 0


def test_a_fast_engine_fills_its_chunks_and_without_the_rule_a_slow_one_leaves_a_hole(
    codec, codes, monkeypatch
):
    frame_ms = 1e3 * codec.config.samples_per_frame / codec.config.sample_rate
    sizes, _ = heard_as_it_is_made(codec, codes, monkeypatch, 0.1 * frame_ms)
    assert sizes == [1, 4, 15, 15]
    _, silent_ms = heard_as_it_is_made(
        codec, codes, monkeypatch, 0.7 * frame_ms, deterministic=True
    )
    assert silent_ms > frame_ms
