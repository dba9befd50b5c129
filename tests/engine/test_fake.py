"""The fake engine keeps the rules of the boundary, and its sound says which sample it is."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from engine import api
from engine.fake import FAKE_MODEL, FakeEngine, FakeScript
from engine.index_sound import chirp, locate_chirp, ramp, read_ramp

GRID = np.zeros((7, 9), dtype=np.int32)
NO_CODES = np.zeros((0, 8), dtype=np.uint16)


class Runner:
    """A fake engine on a thread, and what it published."""

    def __init__(self, script: FakeScript) -> None:
        self.events: list[api.Event] = []
        self._news = threading.Condition()
        self.engine = FakeEngine(self._publish, script)
        self.thread = threading.Thread(target=self.engine.run, name="fake-engine")
        self.thread.start()

    def _publish(self, event: api.Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def send(self, *commands: api.Command) -> None:
        for command in commands:
            self.engine.submit(command)

    def wait(self, wanted: type, row: int = 1) -> api.Event:
        def found() -> api.Event | None:
            return next((e for e in self.of(row) if isinstance(e, wanted)), None)

        with self._news:
            assert self._news.wait_for(found, timeout=10), f"no {wanted.__name__}: {self.events}"
        return found()

    def of(self, row: int) -> list[api.Event]:
        return [e for e in self.events if getattr(e, "row", None) == row]

    def stop(self) -> None:
        self.engine.release()
        self.engine.submit(api.Stop(0.0))
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def run() -> Iterator[Callable[..., Runner]]:
    runners: list[Runner] = []

    def start(**script: object) -> Runner:
        runners.append(Runner(FakeScript(**script)))
        return runners[-1]

    yield start
    for runner in runners:
        runner.stop()


def opened(row: int = 1, **changes: object) -> api.Open:
    command = api.Open(
        row=row,
        model=FAKE_MODEL.name,
        grid=GRID,
        decoder_codes=NO_CODES,
        generated=NO_CODES,
        seed=5,
        sampling=api.Sampling(),
        lane="live",
        prebuffer_ms=0,
        max_ahead_ms=60_000,
        max_frames=1000,
    )
    return replace(command, **changes)


def sound(events: list[api.Event]) -> np.ndarray:
    pcm = [e.pcm[:, 0] for e in events if isinstance(e, api.Frames)]
    return np.concatenate(pcm) if pcm else np.zeros(0, np.float32)


def test_a_row_speaks_frames_in_proportion_to_its_text_then_one_segment_and_one_done(run):
    runner = run(chunk_ramp_frames=(1, 4, 15))
    runner.send(opened(), api.Feed(1, (1, 2, 3)), api.Feed(1, (4,)), api.End(1))
    done = runner.wait(api.Done)
    *frames, segment, last = runner.of(1)
    assert [len(e.codes) for e in frames] == [1, 4, 12]
    assert [e.first_frame for e in frames] == [0, 1, 5]
    assert segment == api.Segment(1, 0, 17, 4, "eos")
    assert last is done
    assert done.reason == "completed"
    assert (done.counts.frames, done.counts.text_ids) == (17, 4)
    np.testing.assert_array_equal(sound(frames), chirp(0, 17 * 1920, 24000))


def test_nothing_is_spoken_before_twelve_ids_or_the_end_of_the_text(run):
    runner = run()
    runner.send(opened(1), api.Feed(1, tuple(range(11))))
    runner.send(opened(2), api.Feed(2, tuple(range(12))))
    assert runner.wait(api.Parked, row=2).why == "text"
    assert runner.of(1) == []
    assert len(sound(runner.of(2))) == 36 * 1920


def test_a_flush_ends_a_segment_and_later_text_opens_the_next(run):
    runner = run()
    runner.send(opened(), api.Feed(1, (1, 2)), api.Flush(1, GRID), api.Feed(1, (3,)), api.End(1))
    runner.wait(api.Done)
    segments = [e for e in runner.of(1) if isinstance(e, api.Segment)]
    assert segments == [api.Segment(1, 0, 11, 2, "flush"), api.Segment(1, 1, 19, 1, "eos")]


def test_a_starved_row_parks_and_goes_on_without_losing_a_sample(run):
    runner = run()
    runner.send(opened(), api.Feed(1, tuple(range(12))))
    runner.wait(api.Parked)
    runner.send(api.Feed(1, (1,)), api.End(1))
    runner.wait(api.Done)
    assert [e.why for e in runner.of(1) if isinstance(e, api.Parked | api.Resumed)] == ["text"] * 2
    np.testing.assert_array_equal(sound(runner.of(1)), chirp(0, (13 * 3 + 5) * 1920, 24000))


def test_a_row_stays_within_max_ahead_of_what_was_played(run):
    runner = run()
    runner.send(opened(max_ahead_ms=400), api.Feed(1, tuple(range(20))), api.End(1))
    assert runner.wait(api.Parked).why == "flow"
    assert len(sound(runner.of(1))) == 5 * 1920
    runner.send(api.Played(1, 2 * 1920, 0))
    runner.wait(api.Resumed)
    runner.send(api.Played(1, 65 * 1920, 0))
    runner.wait(api.Done)
    assert len(sound(runner.of(1))) == 65 * 1920


def test_blank_text_completes_without_a_frame_or_a_segment(run):
    runner = run()
    runner.send(opened(), api.End(1))
    assert runner.wait(api.Done).reason == "completed"
    assert len(runner.of(1)) == 1


def test_cancel_is_idempotent_and_nothing_follows_done(run):
    runner = run(block_after_frames=2)
    runner.send(opened(), api.Feed(1, tuple(range(20))))
    runner.wait(api.Frames)
    runner.send(api.Cancel(1), api.Cancel(1), api.Feed(1, (1,)))
    assert runner.wait(api.Done).reason == "cancelled"
    runner.send(opened(2), api.Feed(2, (1,)), api.End(2))
    runner.wait(api.Frames, row=2)
    assert [type(e) for e in runner.of(1)][-1] is api.Done
    assert sum(isinstance(e, api.Done) for e in runner.of(1)) == 1


def test_a_full_engine_queues_then_refuses(run):
    model = replace(FAKE_MODEL, capacity_rows=1)
    runner = run(model=model, max_queued_rows=1, block_after_frames=0)
    runner.send(opened(1), opened(2), opened(3))
    assert runner.wait(api.Refused, row=3).code == "overloaded"
    runner.send(api.Cancel(1), api.Feed(2, (1,)), api.End(2))
    runner.engine.release()
    assert runner.wait(api.Done, row=2).reason == "completed"


def test_a_row_that_never_ends_is_cut_at_max_frames(run):
    runner = run(never_end=True)
    runner.send(opened(max_frames=50), api.Feed(1, (1,)), api.End(1))
    assert runner.wait(api.Done).reason == "max_audio"
    assert runner.of(1)[-2] == api.Segment(1, 0, 50, 1, "budget")


def test_scripted_faults(run):
    failing = run(fail_after_frames=2)
    failing.send(opened(), api.Feed(1, (1,)), api.End(1))
    assert failing.wait(api.Done).reason == "failed"
    assert len(sound(failing.of(1))) == 2 * 1920
    refusing = run(refuse="bad_grid")
    refusing.send(opened())
    assert refusing.wait(api.Refused).code == "bad_grid"
    dying = FakeEngine(lambda event: None, FakeScript(die_after_frames=1))
    dying.submit(opened())
    dying.submit(api.Feed(1, (1,)))
    dying.submit(api.End(1))
    with pytest.raises(RuntimeError, match="after 1 frames"):
        dying.run()


def test_block_after_k_frames_holds_exactly_there_until_released(run):
    runner = run(block_after_frames=1)
    runner.send(opened(), api.Feed(1, (1,)), api.End(1))
    runner.wait(api.Frames)
    runner.send(opened(2), api.Feed(2, (1,)), api.Cancel(2))
    runner.wait(api.Done, row=2)
    assert len(sound(runner.of(1))) == 1920
    runner.engine.release()
    runner.wait(api.Done)
    assert len(sound(runner.of(1))) == 8 * 1920


def test_encoding_does_not_depend_on_how_the_sound_was_cut(run):
    pcm = np.random.default_rng(0).standard_normal(5000).astype(np.float32) / 10
    runner = run()
    runner.send(api.Encode(1, FAKE_MODEL.name, pcm, True, "keep"))
    for start in range(0, 5000, 700):
        part = pcm[start : start + 700]
        runner.send(api.Encode(2, FAKE_MODEL.name, part, start + 700 >= 5000, "keep"))
    runner.send(opened(), api.Cancel(1))
    runner.wait(api.Done)
    encoded = [e for e in runner.events if isinstance(e, api.Encoded)]
    whole = next(e.codes for e in encoded if e.stream == 1)
    parts = [e for e in encoded if e.stream == 2]
    np.testing.assert_array_equal(np.concatenate([e.codes for e in parts]), whole)
    assert whole.shape == (3, 8)
    assert [e.end for e in parts][-1]
    assert [e.first_frame for e in parts] == [0, 1, 2]


def test_two_runs_of_one_script_publish_the_same(run):
    def events() -> list[bytes]:
        runner = run()
        runner.send(opened(), api.Feed(1, (1, 2)), api.End(1))
        runner.wait(api.Done)
        return [api.pack(event) for event in runner.of(1)]

    assert events() == events()


def test_ramp_names_every_sample_and_a_lost_one_shows():
    pcm = np.round(ramp(100, 70_000) * 32767).astype(np.int16)
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(100, 70_100) % 65535)
    assert set(np.diff(read_ramp(np.delete(pcm, 500))[:1000])) == {1, 2}


def test_a_stretch_of_chirp_is_found_and_a_lost_sample_moves_it():
    pcm = chirp(0, 3 * 24000, 24000)
    for start in (0, 1, 777, 40_000):
        assert locate_chirp(pcm[start : start + 1920], 24000) == start
    assert locate_chirp(np.delete(pcm, 100)[40_000 : 40_000 + 1920], 24000) == 40_001
