"""Nothing stays behind: a thousand random lives, and engines that come and go."""

import gc
import os
import random
import threading

import numpy as np
import pytest

from engine import api
from engine.models.runner import RealtimeRunner
from tests.engine.harness import N_VQ, Harness

LIVES = 1000
SENTENCE = "the train leaves from platform nine in twenty minutes so take your time my friend"


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def live_runners() -> int:
    return sum(type(thing) is RealtimeRunner for thing in gc.get_objects())


def live_a_little(harness: Harness, rng: random.Random, live: list[int]) -> None:
    """One random act: open, feed, flush, end, cancel, encode, warm, or let time pass."""
    act = rng.random()
    name = harness.engine.parts.info.name
    if len(live) < 6 and act < 0.5:
        voice = np.random.default_rng(rng.randrange(5)).integers(0, 1024, (9, N_VQ))
        live.append(
            harness.open(
                grid=harness.context(voice.astype(np.uint16)),
                max_frames=rng.randint(1, 4),
                max_ahead_ms=rng.choice([80, 10**6]),
            )
        )
    elif live and act < 0.8:
        row = rng.choice(live)
        ids = harness.prompt.tokenizer.encode(SENTENCE)
        harness.send(api.Feed(row, tuple(rng.choices(ids, k=rng.randint(1, 15)))))
        if rng.random() < 0.3:
            harness.send(api.Flush(row, harness.prompt.next_prefix("training")))
        if rng.random() < 0.7:
            harness.send(api.End(row))
    elif live and act < 0.9:
        harness.send(api.Cancel(rng.choice(live)))
    elif act < 0.93:
        pcm = np.zeros(rng.randint(1, 4000), np.float32)
        harness.send(api.Encode(rng.randrange(3), name, pcm, rng.random() < 0.5, "keep"))
    elif act < 0.95:
        harness.send(api.Warm(str(rng.randrange(3)), name, harness.context(), rng.choice([0, 99])))
    elif live:
        harness.send(api.Played(rng.choice(live), rng.randrange(10_000), 0))
    harness.tick()


@pytest.mark.slow
def test_a_thousand_lives_leave_nothing_behind():
    rng = random.Random(3)
    harness = Harness(max_rows=4, max_queued_rows=3, cache_blocks=12, codec_slots=4)
    live_a_little(harness, rng, [])
    files, threads = open_files(), threading.active_count()
    live: list[int] = []
    while harness.next_row <= LIVES:
        live_a_little(harness, rng, live)
        for row in list(live):
            if row in harness.rows and harness._is_over(row):
                assert sum(isinstance(e, api.Done) for e in harness.rows[row].events) <= 1
                live.remove(row)
                del harness.rows[row]
        harness.others.clear()
    harness.send(*(api.Cancel(row) for row in live), *(api.CancelEncode(n) for n in range(3)))
    harness.tick(3)
    assert harness.engine.parts.cache.pool.used > 0
    harness.engine.release()
    assert not any(harness.leftovers().values())
    assert open_files() == files
    assert threading.active_count() == threads


@pytest.mark.slow
def test_an_engine_that_is_gone_is_gone():
    """Ten engines in a row leave no thread, no file and no engine object."""
    Harness()
    gc.collect()
    files, threads, runners = open_files(), threading.active_count(), live_runners()
    for _ in range(10):
        harness = Harness(max_grid_rows=256, cache_blocks=16)
        harness.finish(harness.open("Yes.", max_frames=2))
        del harness
    gc.collect()
    assert open_files() == files
    assert threading.active_count() == threads
    assert live_runners() == runners
