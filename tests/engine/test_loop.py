"""Several models on one thread: each row reaches its own, and they share what is the same."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest

from engine import api
from engine.codec.codec import load_codec
from engine.loop import EngineLoop
from engine.models.speech_models import load_speech_model
from engine.models.utterances import SpeechRequest
from tests.engine.harness import GREEDY, SHIPPED, write_random_codec

DELAY = Path(__file__).parents[1] / "vectors" / "delay" / "tiny_a"
TIMEOUT_S = 120


class Running:
    """A loop on a thread, and what it published."""

    def __init__(self, codec_dir: str) -> None:
        self.events: list[api.Event] = []
        self.news = threading.Condition()
        small = dataclasses.replace(SHIPPED, codec_dir=codec_dir, max_rows=2, codec_slots=2)
        configs = [
            dataclasses.replace(small, model_dir=str(DELAY), model_name="one", variant="tts"),
            dataclasses.replace(
                small, model_dir=str(DELAY), model_name="two", variant="sound_effect"
            ),
        ]
        self.loop = EngineLoop(configs, self._take)
        self.speech = {
            name: load_speech_model(DELAY, variant)
            for name, variant in (("one", "tts"), ("two", "sound_effect"))
        }
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def _take(self, event: api.Event) -> None:
        with self.news:
            self.events.append(event)
            self.news.notify_all()

    def wait(self, condition) -> None:
        with self.news:
            assert self.news.wait_for(lambda: condition(self.events), TIMEOUT_S)

    def say(self, row: int, name: str, model: str | None = None) -> None:
        request = SpeechRequest(text="the rain is falling", frame_ms=80.0)
        [utterance] = self.speech[name].utterances(request)
        nothing = np.zeros((0, 8), np.uint16)
        self.loop.submit(
            api.Open(
                row=row,
                model=model or name,
                grid=utterance.grid,
                decoder_codes=nothing,
                generated=nothing,
                seed=row,
                sampling=GREEDY,
                lane="throughput",
                prebuffer_ms=0,
                max_ahead_ms=10**7,
                max_frames=3,
            )
        )

    def stop(self) -> None:
        self.loop.submit(api.Stop(5.0))
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def codec_dir(tmp_path_factory):
    return write_random_codec(tmp_path_factory.mktemp("loop") / "codec", n_codebooks=8)


@pytest.fixture
def running(codec_dir):
    running = Running(codec_dir)
    yield running
    running.stop()


def of_row(events, kind, row):
    return [event for event in events if isinstance(event, kind) and event.row == row]


def test_each_row_is_spoken_by_its_model(running):
    running.say(1, "one")
    running.say(2, "two")
    running.wait(lambda events: all(of_row(events, api.Done, row) for row in (1, 2)))
    [ready] = [event for event in running.events if isinstance(event, api.Ready)]
    assert running.events[0] == ready
    assert [(info.name, info.variant) for info in ready.models] == [
        ("one", "tts"),
        ("two", "sound_effect"),
    ]
    for row in (1, 2):
        assert sum(len(frames.codes) for frames in of_row(running.events, api.Frames, row)) == 3
        [done] = of_row(running.events, api.Done, row)
        assert done.reason == "max_audio"


def test_the_same_codec_is_loaded_once(codec_dir, monkeypatch):
    loaded = []

    def load(directory, **how):
        loaded.append(directory)
        return load_codec(directory, **how)

    monkeypatch.setattr("engine.parts.load_codec", load)
    Running(codec_dir).stop()
    assert loaded == [Path(codec_dir)]


def test_a_model_that_is_not_loaded_is_refused(running):
    running.say(3, "one", model="three")
    running.wait(lambda events: of_row(events, api.Refused, 3))
    [refused] = of_row(running.events, api.Refused, 3)
    assert refused.code == "unknown_model"


def test_references_are_encoded_by_the_model_they_are_for(running):
    pcm = np.random.default_rng(0).normal(0, 0.1, 19_200).astype(np.float32)
    running.loop.submit(api.Encode(7, "two", pcm, end=True, loudness="keep"))
    running.wait(
        lambda events: any(isinstance(event, api.Encoded) and event.end for event in events)
    )
    codes = [event.codes for event in running.events if isinstance(event, api.Encoded)]
    assert np.concatenate(codes).shape == (10, 8)


def test_one_heartbeat_for_all(running):
    def is_idle_after_both(events):
        stats = [event for event in events if isinstance(event, api.Stats)]
        return stats and stats[-1].frames_total == 6 and stats[-1].rows_open == 0

    running.say(1, "one")
    running.say(2, "two")
    running.wait(is_idle_after_both)
    assert running.events[-1].codec_slots_total == 4
