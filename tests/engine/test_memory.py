"""Memory runs short: what idle dialogues left behind is dropped, and comes back by itself."""

import dataclasses

import numpy as np
import pytest

from engine import api
from tests.engine.harness import N_VQ, SHIPPED, Harness

pytestmark = pytest.mark.slow

TEXT = "That sounds like a wonderful idea, and I would like to hear more of it."


def dialogue(harness, voice):
    """A turn, and the grid that the next one opens with."""
    codes = np.random.default_rng(voice).integers(0, 1024, (40, N_VQ)).astype(np.uint16)
    context = harness.context(codes)
    [log] = harness.finish(harness.open(TEXT, grid=context, seed=voice))
    prompt = harness.prompt
    turn = prompt.assistant_turn(prompt.tokenizer.encode(TEXT), log.codes, "training")
    header = prompt.assistant_header(first=False, layout="training")
    return np.concatenate([context, turn, header]), log.codes


def next_turn(harness, grid, codes):
    [log] = harness.finish(harness.open("Thank you.", grid=grid, decoder_codes=codes, seed=9))
    return log


@pytest.mark.parametrize("host_blocks", [0, 64])
def test_a_dialogue_whose_memory_was_dropped_goes_on_as_if_it_were_not(host_blocks):
    roomy = Harness(SHIPPED)
    expected = next_turn(roomy, *dialogue(roomy, voice=1))
    config = dataclasses.replace(
        SHIPPED, max_rows=2, codec_slots=2, cache_blocks=24, host_cache_blocks=host_blocks
    )
    short = Harness(config)
    grid, codes = dialogue(short, voice=1)
    for voice in (2, 3, 4):
        dialogue(short, voice)
    log = next_turn(short, grid, codes)
    np.testing.assert_array_equal(log.codes, expected.codes)
    np.testing.assert_allclose(log.pcm, expected.pcm, rtol=0, atol=1e-4)
    assert not any(event.discontinuity for event in log.of(api.Frames))
    full = len(grid) // 16 * 16
    assert (log.done.counts.reused_grid_rows > full - 64) == (host_blocks > 0)
    assert short.engine.parts.cache.pool.used <= 24
    assert not any(short.leftovers().values())


def test_pins_of_idle_sessions_give_way_to_a_row():
    """`Warm` holds a context only while memory allows; a row that speaks comes first."""
    harness = Harness(dataclasses.replace(SHIPPED, max_rows=2, cache_blocks=24))
    for session in range(8):
        codes = np.random.default_rng(session).integers(0, 1024, (80, N_VQ)).astype(np.uint16)
        name = harness.engine.parts.info.name
        harness.send(api.Warm(f"s{session}", name, harness.context(codes), pin_s=1000))
        harness.tick(3)
    pool = harness.engine.parts.cache.pool
    assert pool.total - 10 < pool.referenced <= pool.total
    grid, _ = dialogue(harness, voice=9)
    [log] = harness.finish(harness.open(TEXT, grid=grid, max_frames=2))
    assert log.done.counts.reused_grid_rows > len(grid) - 64
