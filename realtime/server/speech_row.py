"""One row of the engine that says one utterance."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from types import TracebackType

import numpy as np

from engine.api import (
    Cancel,
    Done,
    End,
    Feed,
    Frames,
    ModelInfo,
    Open,
    Played,
    Refused,
    Sampling,
    TextSampling,
)
from engine.models.utterances import Utterance, no_codes
from realtime.server.bridge import EngineBridge, RowEvent
from realtime.server.errors import ApiError
from realtime.session.restarts import RESTARTED, Restarts

MAX_AHEAD_MS = 30_000
"""How far the row may run ahead of a client that reads slowly, before it is parked."""


class SpeechRow:
    """Opens the row on entry, and cancels it on exit unless it has ended.

    If the engine dies, the next one goes on with it.
    """

    def __init__(
        self,
        bridge: EngineBridge,
        model: ModelInfo,
        *,
        utterance: Utterance,
        seed: int,
        sampling: Sampling,
        text_sampling: TextSampling | None,
        max_frames: int,
        name: str = "",
    ) -> None:
        self._name = name
        self._bridge = bridge
        self._text_ids = utterance.fed_ids
        self._events: asyncio.Queue[RowEvent] = asyncio.Queue()
        self._ended = False
        self._restarts = Restarts()
        self._played_samples = 0
        self._open = Open(
            row=bridge.new_id(),
            model=model.name,
            grid=utterance.grid,
            decoder_codes=utterance.decoder_codes,
            generated=no_codes(utterance.n_vq or model.n_vq),
            seed=seed,
            sampling=sampling,
            lane="throughput",
            prebuffer_ms=0,
            max_ahead_ms=MAX_AHEAD_MS,
            max_frames=max_frames,
            text_sampling=text_sampling,
            n_vq=utterance.n_vq,
        )

    def __enter__(self) -> SpeechRow:
        self._listen()
        self._bridge.send(self._open)
        self._feed()
        return self

    def _listen(self) -> None:
        self._bridge.rows.name(self._open.row, self._name)
        self._bridge.listen(self._open.row, self._events.put_nowait)

    def _feed(self) -> None:
        self._bridge.send(Feed(self._open.row, self._text_ids))
        self._bridge.send(End(self._open.row))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._ended:
            self._bridge.unlisten(self._open.row)
            self._bridge.send(Cancel(self._open.row))

    async def next_sound(self) -> Frames | Done:
        """Wait for the next sound, or the end of a row that ended well.

        Raises `ApiError` for every other end.
        """
        while True:
            event = await self._events.get()
            match event:
                case Frames():
                    made = np.concatenate([self._open.generated, event.codes])
                    sizes = (*self._open.chunk_frames, len(event.codes))
                    self._open = dataclasses.replace(self._open, generated=made, chunk_frames=sizes)
                    if len(event.pcm):
                        return event
                case Done() if event.error.startswith(RESTARTED) and self._may_go_on():
                    self._go_on()
                case Done() | Refused():
                    self._ended = True
                    return _good_end(event)

    def _may_go_on(self) -> bool:
        return self._restarts.allow(len(self._open.generated))

    def _go_on(self) -> None:
        self._open = dataclasses.replace(self._open, row=self._bridge.new_id())
        self._listen()
        self._bridge.reopen(self._open)
        self._feed()
        self.played(self._played_samples)

    def played(self, samples: int) -> None:
        """Say how many samples the client has taken so far."""
        self._played_samples = samples
        self._bridge.send(Played(self._open.row, samples, time.monotonic_ns()))


def _good_end(event: Done | Refused) -> Done:
    if isinstance(event, Refused):
        raise _refusal(event)
    if event.reason == "cancelled":
        raise ApiError(503, "draining", "the server is shutting down", retry_after_s=2)
    if event.reason == "failed":
        if event.error.startswith(RESTARTED):
            raise _restarted()
        raise ApiError(500, "generation_failed", f"the engine failed: {event.error}")
    return event


def _refusal(event: Refused) -> ApiError:
    if event.code == "overloaded":
        retry_after_s = max(1, -(-event.retry_after_ms // 1000))
        message = f"the server is at capacity ({event.message}); try again shortly"
        return ApiError(429, "overloaded", message, retry_after_s=retry_after_s)
    if event.code == RESTARTED:
        return _restarted()
    return ApiError(400, event.code, event.message)


def _restarted() -> ApiError:
    message = "the engine failed and is being restarted; try again"
    return ApiError(503, RESTARTED, message, retry_after_s=2)
