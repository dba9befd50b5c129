"""Batch equals solo: with `deterministic`, what else runs changes no bit of a response."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from engine import api
from engine.sampler import Sampler
from tests.engine.harness import N_VQ, SHIPPED, Harness, Log

TEXT = (
    "The train to Boston leaves from platform nine in twenty minutes, so take your time, "
    "have a coffee, and call me when you are there."
)
RESPONSES = 104
CONFIG = dataclasses.replace(SHIPPED, deterministic=True, max_rows=6, max_queued_rows=64)


@dataclasses.dataclass(frozen=True)
class Response:
    """One response: segments of text ids, and after how many frames the client cancels."""

    segments: tuple[tuple[int, ...], ...]
    sampling: api.Sampling
    seed: int
    voice: int
    max_ahead_ms: int
    cancel_after_frames: int | None


def make_responses(harness: Harness, rng: random.Random) -> list[Response]:
    """Every other one is long, starves for text and is cancelled; the others have two segments."""
    ids = harness.prompt.tokenizer.encode(TEXT)
    responses = []
    for index in range(RESPONSES):
        long = index % 2 == 0
        lengths = [rng.randint(14, 18) if long else rng.randint(1, 2), 1]
        starts = [rng.randrange(len(ids) - length) for length in lengths]
        responses.append(
            Response(
                segments=tuple(
                    tuple(ids[start : start + length])
                    for start, length in zip(starts, lengths, strict=True)
                ),
                sampling=api.Sampling(
                    temperature=rng.choice([0.6, 0.9]), top_p=0.9, top_k=rng.choice([0, 30])
                ),
                seed=rng.getrandbits(64),
                voice=rng.randrange(3),
                max_ahead_ms=rng.choice([400, 640]),
                cancel_after_frames=rng.choice([1, 5]) if long else None,
            )
        )
    return responses


class Client:
    """Plays one response against the engine, a little in each tick."""

    def __init__(self, harness: Harness, response: Response) -> None:
        self.harness, self.response = harness, response
        voice = np.random.default_rng(response.voice).integers(0, 1024, (20, N_VQ))
        self.row = harness.open(
            grid=harness.context(voice.astype(np.uint16)),
            seed=response.seed,
            sampling=response.sampling,
            max_ahead_ms=response.max_ahead_ms,
            max_frames=40,
        )
        prefix = harness.prompt.next_prefix("training")
        first, second = response.segments
        self.commands: list[api.Command] = [
            api.Feed(self.row, first[:12]),
            *(api.Feed(self.row, (text_id,)) for text_id in first[12:]),
            api.Flush(self.row, prefix),
            *(api.Feed(self.row, (text_id,)) for text_id in second),
            api.End(self.row),
        ]

    @property
    def log(self) -> Log:
        return self.harness.rows.setdefault(self.row, Log())

    @property
    def frames(self) -> int:
        return sum(len(event.codes) for event in self.log.of(api.Frames))

    @property
    def is_done(self) -> bool:
        return bool(self.log.of(api.Done))

    def act(self, rng: random.Random) -> None:
        """Send the next command, or report playback, or cancel."""
        limit = self.response.cancel_after_frames
        if limit is not None and self.frames >= limit:
            self.harness.send(api.Cancel(self.row))
        if self.commands and rng.random() < 0.4:
            self.harness.send(self.commands.pop(0))
        if rng.random() < 0.3:
            heard = 1920 * max(0, self.frames - rng.randint(0, 3))
            self.harness.send(api.Played(self.row, heard, 0))


def run_together(harness: Harness, responses: list[Response], rng: random.Random) -> list[Log]:
    """Random joins: the next response starts while others are anywhere in theirs."""
    waiting, clients = list(responses), []
    for _ in range(20_000):
        if not waiting and all(client.is_done for client in clients):
            return [client.log for client in clients]
        live = [client for client in clients if not client.is_done]
        if waiting and len(live) < 6 and (not live or rng.random() < 0.3):
            clients.append(Client(harness, waiting.pop(0)))
        for client in live:
            client.act(rng)
        harness.tick()
    raise AssertionError("some response never ended")


def run_alone(harness: Harness, response: Response) -> Log:
    client = Client(harness, response)
    while not client.is_done:
        harness.send(*client.commands, api.Played(client.row, 10**9, 0))
        client.commands = []
        client.act(random.Random(0))
        harness.tick()
    return client.log


def differences(together: list[Log], alone: list[Log]) -> int:
    """Responses whose codes or sound differ in any bit, as far as both were made."""
    return sum(not _same(a, b) for a, b in zip(together, alone, strict=True))


def _same(a: Log, b: Log) -> bool:
    if not (a.of(api.Frames) and b.of(api.Frames)):
        return a.done.reason == "cancelled" or b.done.reason == "cancelled"
    frames = min(len(a.codes), len(b.codes))
    samples = min(len(a.pcm), len(b.pcm))
    complete = "cancelled" in (a.done.reason, b.done.reason) or len(a.codes) == len(b.codes)
    same_codes = np.array_equal(a.codes[:frames], b.codes[:frames])
    return complete and same_codes and a.pcm[:samples].tobytes() == b.pcm[:samples].tobytes()


def count(logs: list[Log], kind: type, **fields: str) -> int:
    return sum(
        all(getattr(event, name) == value for name, value in fields.items())
        for log in logs
        for event in log.of(kind)
    )


@pytest.fixture(scope="module")
def runs():
    rng = random.Random(20261201)
    harness = Harness(CONFIG)
    responses = make_responses(harness, rng)
    together = run_together(harness, responses, rng)
    assert not any(harness.leftovers().values())
    solo = Harness(CONFIG)
    return responses, together, [run_alone(solo, response) for response in responses]


@pytest.mark.slow
def test_the_run_is_busy_enough(runs):
    _, together, _ = runs
    cancelled = sum(log.done.reason == "cancelled" for log in together)
    flushed = sum(log.of(api.Segment)[:1] != [] for log in together)
    parks = {why: count(together, api.Parked, why=why) for why in ("text", "flow")}
    print(f"joins={len(together)} cancels={cancelled} flushes={flushed} parks={parks}")
    assert min(len(together), cancelled, flushed, *parks.values()) >= 50


@pytest.mark.slow
def test_batch_equals_solo_bit_for_bit(runs):
    _, together, alone = runs
    assert differences(together, alone) == 0


@pytest.mark.slow
def test_a_leak_between_rows_is_noticed(runs, monkeypatch):
    """Negative control: a slot that keeps the last row's penalty history changes what is drawn."""
    responses, _, alone = runs
    monkeypatch.setattr(Sampler, "forget", lambda self, slot: None)
    leaky = run_together(Harness(CONFIG), responses[:20], random.Random(1))
    assert differences(leaky, alone[:20]) > 0
