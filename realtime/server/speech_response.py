"""The answer to one speech request: its status waits for the first sound, then sound streams."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.api import Done, Frames, ModelInfo
from realtime.server.audio import AudioFormat, Writer, clipped_samples, open_writer
from realtime.server.errors import ApiError
from realtime.server.off_loop import off_loop
from realtime.server.services import Services
from realtime.server.speech_framing import Framing, Outcome, RawFraming, SseFraming
from realtime.server.speech_rows import SpeechRows

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Speech:
    """A request that was understood. `open_row` may still wait for a reference to be encoded."""

    received_at: float  # on time.monotonic
    request_id: str
    model: ModelInfo
    audio_format: AudioFormat
    file_hz: int | None  # None: as the model speaks
    sse: bool
    voice_name: str
    open_row: Callable[[], Coroutine[Any, Any, SpeechRows]]
    """Returns the row, not entered yet."""


class SpeechResponse(Response):
    """Runs a row for as long as its client is there.

    Once the answer has ended, `ending` says how; it is None when the client left before.
    """

    def __init__(self, services: Services, speech: Speech) -> None:
        self.ending: Outcome | ApiError | None = None
        self._services = services
        self._speech = speech
        self._samples = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Raises `ApiError` where nothing was sent yet."""
        status = "failed"
        try:
            status = await while_connected(receive, self._answer(send))
        except ClientDisconnect:
            status = "cancelled"
        finally:
            metrics = self._services.metrics
            metrics.responses.labels(status).inc()
            metrics.audio_s.inc(self._samples / self._speech.model.rate_hz)
            logger.info("speech req=%s status=%s", self._speech.request_id, status)

    async def _answer(self, send: Send) -> str:
        row = await self._speech.open_row()
        with row:
            first = await row.next_sound()
            if isinstance(first, Done):
                raise ApiError(500, "no_audio_generated", f"no sound came ({first.reason})")
            ttfa_s = time.monotonic() - self._speech.received_at
            self._services.metrics.ttfa_s.observe(ttfa_s)
            model = self._speech.model
            opener = functools.partial(open_writer, file_hz=self._speech.file_hz)
            writer = await off_loop(
                self._services, opener, self._speech.audio_format, model.rate_hz, model.channels
            )
            framing = self._framing(writer)
            await send(self._start(framing, writer))
            body = _Body(send, framing, self._services.config.slow_consumer_s)
            try:
                done = await self._stream(first, row, writer, body)
                self.ending = self._outcome(done, row, ttfa_s)
                await body.end(self.ending)
            except ApiError as error:
                self.ending = error
                logger.warning("speech req=%s error=%s", self._speech.request_id, error.message)
                await body.fail(error)
                return "failed"
            except TimeoutError:
                self._services.metrics.slow_consumers.inc()
                return "failed"
        return "completed" if done.reason == "completed" else "incomplete"

    async def _stream(self, first: Frames, row: SpeechRows, writer: Writer, body: _Body) -> Done:
        event: Frames | Done = first
        while isinstance(event, Frames):
            self._services.metrics.clipped_samples.inc(clipped_samples(event.pcm))
            await body.sound(await off_loop(self._services, writer.write, event.pcm))
            self._samples += len(event.pcm)
            row.played(self._samples)
            event = await row.next_sound()
        await body.sound(await off_loop(self._services, writer.finish))
        return event

    def _framing(self, writer: Writer) -> Framing:
        if self._speech.sse:
            channels = self._speech.model.channels
            return SseFraming(self._speech.audio_format, writer.rate_hz, channels)
        return RawFraming(writer.content_type)

    def _start(self, framing: Framing, writer: Writer) -> dict[str, Any]:
        headers = {
            "content-type": framing.content_type,
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-audio-sample-rate": str(writer.rate_hz),
            "x-audio-channels": str(self._speech.model.channels),
            "x-audio-format": self._speech.audio_format,
            "x-request-id": self._speech.request_id,
            "x-model": self._speech.model.name,
            "x-voice": self._speech.voice_name,
        }
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        return {"type": "http.response.start", "status": 200, "headers": raw}

    def _outcome(self, done: Done, row: SpeechRows, ttfa_s: float) -> Outcome:
        return Outcome(
            finish_reason="stop" if done.reason == "completed" else "length",
            text_tokens=row.text_tokens,
            voice_frames=row.reference_frames,
            frames=done.counts.frames,
            audio_ms=self._samples * 1000 // self._speech.model.rate_hz,
            ttfa_ms=round(ttfa_s * 1000),
        )


class _Body:
    """The chunked body; raises `TimeoutError` when the client takes nothing for too long."""

    def __init__(self, send: Send, framing: Framing, slow_consumer_s: float) -> None:
        self._send = send
        self._framing = framing
        self._slow_consumer_s = slow_consumer_s

    async def sound(self, data: bytes) -> None:
        if data:
            await self._write(self._framing.sound(data), more=True)

    async def end(self, outcome: Outcome) -> None:
        await self._write(self._framing.end(outcome), more=False)

    async def fail(self, error: ApiError) -> None:
        """Say that the answer broke. Where the framing has no words for it, leave the body without
        its end: the server then cuts the connection, which no client takes for success.
        """
        data = self._framing.failure(error)
        if data is not None:
            await self._write(data, more=False)

    async def _write(self, data: bytes, *, more: bool) -> None:
        async with asyncio.timeout(self._slow_consumer_s):
            await self._send({"type": "http.response.body", "body": data, "more_body": more})


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; cancel it and raise `ClientDisconnect` once the client has gone."""
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_watch(receive), name="watch client")
            result = await work
            watch.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return result


async def _watch(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
