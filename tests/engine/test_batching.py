"""Prefill in pieces, and rows that share a batch: nobody waits long, nobody gets another's."""

import dataclasses

import numpy as np
import pytest

from engine import api
from tests.engine.harness import N_VQ, SHIPPED, Harness

pytestmark = pytest.mark.slow

TEXT = "That sounds like a wonderful idea, and I would like to hear more of it."


def long_grid(harness, rows=300):
    voice = np.random.default_rng(4).integers(0, 1024, (rows, N_VQ)).astype(np.uint16)
    return harness.context(voice)


@pytest.fixture(scope="module")
def whole():
    harness = Harness(SHIPPED)
    [log] = harness.finish(harness.open(TEXT, grid=long_grid(harness), max_frames=12))
    return log


@pytest.mark.parametrize("budget", [1, 7, 64])
def test_a_prompt_in_pieces_gives_the_same_speech_and_nothing_before_it_is_whole(whole, budget):
    """Also where the last piece is a single grid row."""
    harness = Harness(dataclasses.replace(SHIPPED, prefill_budget_grid_rows=budget))
    runner, row = harness.engine.parts.runner, harness.next_row
    pieces, prefill, draw = [], runner.prefill, runner.draw

    def counted(slot, start, rows):
        pieces.append(len(rows))
        prefill(slot, start, rows)

    def drawn(rows):
        for drawing in rows:
            assert not len(drawing.pending), "a row draws before its prompt is prefilled"
        return draw(rows)

    runner.prefill, runner.draw = counted, drawn
    harness.open(TEXT, grid=long_grid(harness), max_frames=12)
    [log] = harness.finish(row)
    assert max(pieces) <= budget
    assert sum(pieces) == log.done.counts.prefill_grid_rows
    np.testing.assert_array_equal(log.codes, whole.codes)
    np.testing.assert_allclose(log.pcm, whole.pcm, rtol=0, atol=1e-4)


def test_a_long_prompt_takes_one_budget_of_each_tick():
    harness = Harness(dataclasses.replace(SHIPPED, prefill_budget_grid_rows=32))
    runner, prefilled, prefill = (
        harness.engine.parts.runner,
        [],
        harness.engine.parts.runner.prefill,
    )

    def counted(slot, start, rows):
        prefilled[-1] += len(rows)
        prefill(slot, start, rows)

    speaking = harness.open(TEXT)
    harness.tick(8)
    steps = runner.steps_run
    runner.prefill = counted
    long = harness.open(TEXT, grid=long_grid(harness), max_frames=2)
    while long not in harness.rows:
        prefilled.append(0)
        harness.tick()
    assert len(prefilled) >= 300 / 32
    assert max(prefilled) <= 32
    assert runner.steps_run > steps, "the other row goes on meanwhile"
    harness.finish(speaking, long)


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: [*d, d[0]]], ids=["less", "more"])
def test_a_batch_of_another_length_than_its_rows_is_an_error_and_no_mix_up(change):
    harness = Harness(dataclasses.replace(SHIPPED, max_rows=2))
    rows = [harness.open(TEXT) for _ in range(2)]
    harness.tick(6)
    before = [len(harness.rows[row].codes) for row in rows]
    runner = harness.engine.parts.runner
    draw, runner.draw = runner.draw, lambda drawing: change(list(draw(drawing)))
    harness.tick()
    runner.draw = draw
    for row, frames in zip(rows, before, strict=True):
        log = harness.rows[row]
        assert log.done.reason == "failed"
        assert "zip()" in log.done.error
        assert len(log.codes) - frames <= 1
    assert not any(harness.leftovers().values())


def test_what_was_published_is_never_written_again():
    harness = Harness(dataclasses.replace(SHIPPED, max_rows=2))
    kept = []
    publish = harness.engine._publish

    def keep(event):
        if isinstance(event, api.Frames):
            kept.append((event, event.codes.copy(), event.valid.copy(), event.pcm.copy()))
        publish(event)

    harness.engine._publish = keep
    harness.finish(*(harness.open(TEXT, seed=seed, max_frames=30) for seed in range(5)))
    assert len(kept) > 10
    for event, codes, valid, pcm in kept:
        np.testing.assert_array_equal(event.codes, codes)
        np.testing.assert_array_equal(event.valid, valid)
        np.testing.assert_array_equal(event.pcm, pcm)
