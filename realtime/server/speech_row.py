"""One row of the engine that says one whole text."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

import numpy as np

from engine.api import (
    Cancel,
    Done,
    End,
    Feed,
    Frames,
    I32Grid,
    ModelInfo,
    Open,
    Played,
    Refused,
    Sampling,
)
from realtime.server.bridge import EngineBridge, RowEvent
from realtime.server.errors import ApiError

MAX_AHEAD_MS = 30_000
"""How far the row may run ahead of a client that reads slowly, before it is parked."""

RESTARTED = "engine_restarted"


class SpeechRow:
    """Opens the row on entry, and cancels it on exit unless it has ended."""

    def __init__(
        self,
        bridge: EngineBridge,
        model: ModelInfo,
        *,
        grid: I32Grid,
        text_ids: tuple[int, ...],
        seed: int,
        sampling: Sampling,
        max_frames: int,
    ) -> None:
        no_frames = np.empty((0, model.n_vq), np.uint16)
        self._bridge = bridge
        self._text_ids = text_ids
        self._events: asyncio.Queue[RowEvent] = asyncio.Queue()
        self._ended = False
        self._open = Open(
            row=bridge.new_id(),
            model=model.name,
            grid=grid,
            decoder_codes=no_frames,
            generated=no_frames,
            seed=seed,
            sampling=sampling,
            lane="throughput",
            prebuffer_ms=0,
            max_ahead_ms=MAX_AHEAD_MS,
            max_frames=max_frames,
        )

    def __enter__(self) -> SpeechRow:
        row = self._open.row
        self._bridge.listen(row, self._events.put_nowait)
        for command in (self._open, Feed(row, self._text_ids), End(row)):
            self._bridge.send(command)
        return self

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
                case Frames() if len(event.pcm):
                    return event
                case Done() | Refused():
                    self._ended = True
                    return _good_end(event)

    def played(self, samples: int) -> None:
        """Say how many samples the client has taken so far."""
        self._bridge.send(Played(self._open.row, samples, time.monotonic_ns()))


def _good_end(event: Done | Refused) -> Done:
    if isinstance(event, Refused):
        raise _refusal(event)
    if event.reason == "cancelled":
        raise ApiError(503, "draining", "the server is shutting down", retry_after_s=2)
    if event.reason == "failed":
        if event.error.startswith(RESTARTED):
            message = "the engine failed and is being restarted; try again"
            raise ApiError(503, RESTARTED, message, retry_after_s=2)
        raise ApiError(500, "generation_failed", f"the engine failed: {event.error}")
    return event


def _refusal(event: Refused) -> ApiError:
    if event.code == "overloaded":
        retry_after_s = max(1, -(-event.retry_after_ms // 1000))
        message = f"the server is at capacity ({event.message}); try again shortly"
        return ApiError(429, "overloaded", message, retry_after_s=retry_after_s)
    return ApiError(400, event.code, event.message)
