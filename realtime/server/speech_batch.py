"""`POST /v1/audio/speech/batch`: many requests in one, each answered as if it had come alone."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from realtime.server.errors import ApiError, parse_json_object, read_body, request_id
from realtime.server.off_loop import off_loop
from realtime.server.readiness import check_ready
from realtime.server.services import Services
from realtime.server.speech_framing import Outcome
from realtime.server.speech_request import VOICE_FIELDS, SpeechBody, unknown_field
from realtime.server.speech_response import SpeechResponse, while_connected

logger = logging.getLogger(__name__)

MAX_ITEMS = 32
MAX_BODY_BYTES = 64 << 20
MAX_SOUND_BYTES = 128 << 20
"""Most sound that waits for the end of a batch; with `stream` it leaves item by item."""

Fields = dict[str, Any]
Answer = Callable[[Fields, str, float], Awaitable[SpeechResponse]]


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """A batch that was understood; whether its items are, each of them is told itself."""

    id: str
    items: tuple[Any, ...]
    defaults: Fields
    stream: bool

    def item(self, index: int) -> Fields:
        """The fields of an item over the defaults. Raises `ApiError` 400."""
        item = self.items[index]
        if not isinstance(item, dict):
            message = f"an item must be an object, not {type(item).__name__}"
            raise ApiError(400, "invalid_field", message, param="items")
        own = {name: value for name, value in item.items() if value is not None}
        hidden = VOICE_FIELDS if own.keys() & VOICE_FIELDS else frozenset()
        fields = {n: v for n, v in self.defaults.items() if n not in hidden} | own
        if "stream_format" in fields:
            message = "`stream_format` has no meaning in a batch; `stream`: true sends results "
            message += "as they finish"
            raise ApiError(400, "unsupported", message, param="stream_format")
        return fields


def parse_batch(fields: Fields, batch_id: str) -> Batch:
    """Validate all but the items. Raises `ApiError` 400."""
    defaults = {name: value for name, value in fields.items() if value is not None}
    items, stream = defaults.pop("items", None), defaults.pop("stream", False)
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_ITEMS:
        given = f"{len(items)}" if isinstance(items, list) else repr(items)[:80]
        message = f"`items` must be a list of 1 to {MAX_ITEMS} requests, not {given}"
        raise ApiError(400, "invalid_field", message, param="items")
    if not isinstance(stream, bool):
        message = f"`stream` must be true or false, not {stream!r}"
        raise ApiError(400, "invalid_field", message, param="stream")
    for name in defaults.keys() - SpeechBody.model_fields.keys():
        raise unknown_field(name, ("items", "stream", *SpeechBody.model_fields))
    return Batch(batch_id, tuple(items), defaults, stream)


class BatchEndpoint:
    """`answer` is what a single request is answered with."""

    def __init__(self, services: Services, answer: Answer) -> None:
        self._services = services
        self._answer = answer

    async def speak(self, request: Request) -> Response:
        """Validate the batch; the response does the rest."""
        raw = await read_body(request, MAX_BODY_BYTES)
        fields = await off_loop(self._services, parse_json_object, raw)
        check_ready(self._services)
        return BatchResponse(self._services, parse_batch(fields, request_id(request)), self._answer)


class BatchResponse(Response):
    """Speaks the items side by side, as many as the engine has rows, while the client is there."""

    def __init__(self, services: Services, batch: Batch, answer: Answer) -> None:
        self._services = services
        self._batch = batch
        self._answer = answer
        self._places = asyncio.Semaphore(services.config.max_rows)
        self._room = Room(MAX_SOUND_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; a failed item is told in its result, the status is 200."""
        try:
            await while_connected(receive, self._run(send))
        except ClientDisconnect:
            logger.info("batch req=%s status=cancelled", self._batch.id)

    async def _run(self, send: Send) -> None:
        succeeded, results = 0, []
        try:
            if self._batch.stream:
                await self._send(send, self._start("application/x-ndjson"))
            async with asyncio.TaskGroup() as group:
                speaking = [
                    group.create_task(self._speak(index), name=f"batch-item-{index}")
                    for index in range(len(self._batch.items))
                ]
                for spoken in asyncio.as_completed(speaking):
                    result = await spoken
                    succeeded += result["status"] == "success"
                    if self._batch.stream:
                        await self._send(send, await self._part(result, b"\n", more=True))
                        self._room.give_back(result)
                    else:
                        results.append(result)
            total = len(self._batch.items)
            counts = {"total": total, "succeeded": succeeded, "failed": total - succeeded}
            whole: Fields = {"id": self._batch.id} | counts
            if not self._batch.stream:
                whole["results"] = sorted(results, key=lambda result: int(result["index"]))
                await self._send(send, self._start("application/json"))
            await self._send(send, await self._part(whole, b"\n", more=False))
            logger.info(
                "batch req=%s status=completed failed=%d", self._batch.id, total - succeeded
            )
        except* TimeoutError:
            self._services.metrics.slow_consumers.inc()

    async def _speak(self, index: int) -> Fields:
        async with self._places:
            item_id = f"{self._batch.id}-{index}"
            try:
                fields = self._batch.item(index)
            except ApiError as error:
                result = failure(error)
            else:
                result = await speak_item(self._answer, fields, item_id, self._room)
            return {"index": index} | result

    async def _part(self, value: Fields, end: bytes, *, more: bool) -> Message:
        data = await off_loop(self._services, _as_json, value)
        return {"type": "http.response.body", "body": data + end, "more_body": more}

    def _start(self, content_type: str) -> Message:
        headers = {
            "content-type": content_type,
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-request-id": self._batch.id,
        }
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        return {"type": "http.response.start", "status": 200, "headers": raw}

    async def _send(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._services.config.slow_consumer_s):
            await send(message)


async def speak_item(answer: Answer, fields: Fields, item_id: str, room: Room) -> Fields:
    """Speak one request to its end; return its result, whatever happens.

    `audio_data` of it is the file in bytes.
    """
    sound = _Sound(room)
    try:
        response = await answer(fields, item_id, time.monotonic())
        await response({}, _stay, sound.take)
        ending = response.ending
    except ApiError as error:
        ending = error
    except Exception:
        logger.exception("speech req=%s status=broken", item_id)
        message = "the server failed; the failure has been logged"
        ending = ApiError(500, "internal", message)
    if isinstance(ending, Outcome):
        return sound.fields() | ending.fields()
    room.left_bytes += len(sound.data)
    return failure(ending or ApiError(500, "internal", "the answer has no end"))


def failure(error: ApiError) -> Fields:
    """The result of an item that failed."""
    wait = {"retry_after_s": int(error.headers["Retry-After"])} if error.headers else {}
    return {"status": "error", "status_code": error.status, "error": error.body()} | wait


class Room:
    """What may be held of a batch before it is sent."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes

    def take(self, count: int) -> None:
        """Raises `ApiError` 413 when there is not so much left."""
        if count > self.left_bytes:
            message = f"the batch has more than {MAX_SOUND_BYTES >> 20} MiB of sound; ask for mp3, "
            raise ApiError(413, "too_large", message + "or for `stream`: true")
        self.left_bytes -= count

    def give_back(self, result: Fields) -> None:
        """A result is sent."""
        self.left_bytes += len(result.get("audio_data", b""))


class _Sound:
    """What a single answer sends."""

    def __init__(self, room: Room) -> None:
        self.data = bytearray()
        self._headers: dict[str, str] = {}
        self._room = room

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._headers = {n.decode(): v.decode("latin-1") for n, v in message["headers"]}
        elif body := message.get("body"):
            self._room.take(len(body))
            self.data += body

    def fields(self) -> Fields:
        return {
            "status": "success",
            "status_code": 200,
            "audio_data": bytes(self.data),
            "media_type": self._headers["content-type"],
            "sample_rate": int(self._headers["x-audio-sample-rate"]),
            "channels": int(self._headers["x-audio-channels"]),
            "model": self._headers["x-model"],
            "voice": self._headers["x-voice"],
        }


async def _stay() -> NoReturn:
    """The client of an item is there as long as that of its batch."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets the event")


def _as_json(value: Fields) -> bytes:
    return json.dumps(value, default=_base64, separators=(",", ":")).encode()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
