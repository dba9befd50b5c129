"""One socket: a session's effects carried out, its sound encoded, nothing sent out of order."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable
from typing import Literal

from starlette.websockets import WebSocket, WebSocketDisconnect

from realtime.protocol.codec import Encoding, decode_client, encode
from realtime.protocol.errors import CLOSE_INTERNAL, CLOSE_SLOW_CONSUMER, ProtocolError
from realtime.protocol.frames import AudioFrame, Flags, is_audio
from realtime.protocol.messages import ResponseAudio, ResponseDone
from realtime.server.audio import clipped_samples
from realtime.server.audio_stream import bytes_per_s
from realtime.server.bridge import RowEvent
from realtime.server.credentials import Caller, caller_of
from realtime.server.input_audio import InputAudio, InputDamaged, InputEvent
from realtime.server.logs import log_received
from realtime.server.outbox import Closing, Control, Outbox, Piece
from realtime.server.services import Services
from realtime.server.transport import buffer_bytes, link_of
from realtime.session.effects import (
    Close,
    DecodeInput,
    DropAudio,
    DropInput,
    Effect,
    EndInput,
    Listen,
    Send,
    SendAudio,
    ToEngine,
)
from realtime.session.expiry import Expiry
from realtime.session.pins import NO_PINS, Pins
from realtime.session.session import Session

logger = logging.getLogger(__name__)

Cue = Literal["tick", "shut_down"]


class _SocketDone(Exception):
    """The socket is closed: ends the connection's tasks."""


class Connection:
    """Serves one accepted WebSocket until it closes. The session ends with it."""

    def __init__(
        self, websocket: WebSocket, encoding: Encoding, services: Services, pins: Pins = NO_PINS
    ) -> None:
        self._websocket = websocket
        self._encoding = encoding
        self._services = services
        self._link = link_of(websocket)
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[RowEvent | InputEvent | Cue] = asyncio.Queue()
        self._input: InputAudio | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._model = services.bridge.models[0]
        self._outbox = Outbox(encoding, self._model)
        self._id = f"sess_{secrets.token_hex(8)}"
        self._session = Session(
            session_id=self._id,
            model=self._model,
            prompt=services.prompt,
            voices=services.voices,
            new_id=services.bridge.new_id,
            seed=secrets.randbits(48),
            now_ms=self._now_ms(),
            config=services.session_config,
            pins=pins,
            expiry=self._expiry(caller_of(websocket.scope)),
        )
        self._limited = False
        self._left = False

    async def run(self) -> None:
        """Read, write and listen to the engine until the socket is gone."""
        key = caller_of(self._websocket.scope).key_name
        logger.info("sess=%s status=open encoding=%s key=%s", self._id, self._encoding, key)
        self._services.sessions.add(self.end)
        self._set_timer()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(), name=f"{self._id}-read")
                tasks.create_task(self._listen(), name=f"{self._id}-listen")
                tasks.create_task(self._write(), name=f"{self._id}-write")
        except* (_SocketDone, WebSocketDisconnect):
            pass
        except* Exception:
            logger.exception("sess=%s status=broken", self._id)
            self._link.force_close(CLOSE_INTERNAL, "internal error")
        finally:
            if self._timer:
                self._timer.cancel()
            self._leave()
            self._services.sessions.discard(self.end)
            logger.info("sess=%s status=closed", self._id)

    def end(self) -> None:
        """End the session because the server stops."""
        self._events.put_nowait("shut_down")

    async def _read(self) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                # At once, not when the other tasks have ended: the rows must stop now.
                self._leave()
                raise _SocketDone
            text: str | None = message.get("text")
            self._apply(self._receive(message["bytes"] if text is None else text))

    def _receive(self, data: str | bytes) -> Iterable[Effect]:
        now_ms = self._now_ms()
        if isinstance(data, bytes) and is_audio(data):
            return self._session.receive_audio(data, now_ms)
        try:
            message = decode_client(data, self._encoding, self._services.session_config.limits)
        except ProtocolError as error:
            return self._session.reject(error, now_ms)
        log_received(logger, self._id, message, with_text=self._services.config.log_text)
        return self._session.receive(message, now_ms)

    async def _listen(self) -> None:
        while True:
            event = await self._events.get()
            now_ms = self._now_ms()
            if event == "tick":
                self._apply(self._session.tick(now_ms))
            elif event == "shut_down":
                self._apply(self._session.shut_down(now_ms))
            elif isinstance(event, InputDamaged):
                self._apply(self._session.input_damaged(event.stream, event.problem))
            else:
                self._apply(self._session.engine_event(event, now_ms))

    async def _write(self) -> None:
        while True:
            await self._outbox.wait()
            try:
                async with asyncio.timeout(self._services.config.slow_consumer_s):
                    await self._link.room()
            except TimeoutError:
                self._cut_slow_consumer()
            match self._outbox.take():
                case Control(data):
                    await self._send(data)
                case Piece() as piece:
                    await self._send_piece(piece)
                case Closing(code, reason):
                    await self._websocket.close(code, reason)
                    raise _SocketDone

    async def _send_piece(self, piece: Piece) -> None:
        frame = await self._loop.run_in_executor(
            self._services.audio_pool, piece.stream.encode, piece.pcm, piece.flags, piece.epoch
        )
        if piece.stream.dropped:
            return
        if frame:
            await self._send(self._on_the_wire(frame, piece))
        self._outbox.sent(piece)
        self._note_sound(piece)
        samples = piece.stream.samples_given
        last = Flags.LAST_OF_RESPONSE in piece.flags
        now_ms = self._now_ms()
        self._apply(self._session.transport_sent(piece.handle, samples, last, now_ms))

    def _on_the_wire(self, frame: AudioFrame, piece: Piece) -> str | bytes:
        assert self._session.audio
        if self._session.audio.transport == "binary":
            return frame.pack()
        message = ResponseAudio(
            response_id=piece.response_id,
            stream=frame.stream,
            seq=frame.seq,
            pts=frame.pts,
            samples=frame.samples,
            epoch=frame.epoch,
            flags=frame.flags,
            data=frame.payload,
        )
        return encode(message, self._encoding)

    async def _send(self, data: str | bytes) -> None:
        if isinstance(data, str):
            await self._websocket.send_text(data)
        else:
            await self._websocket.send_bytes(data)

    def _apply(self, effects: Iterable[Effect]) -> None:
        bridge = self._services.bridge
        for effect in effects:
            match effect:
                case Send(message):
                    self._note_message(message)
                    self._outbox.put(message)
                case SendAudio():
                    assert self._session.audio
                    self._outbox.put_audio(effect, self._session.audio)
                case DropAudio(stream):
                    self._outbox.drop(stream)
                case ToEngine(command):
                    bridge.send(command)
                case Listen(row):
                    bridge.listen(row, self._events.put_nowait)
                case DecodeInput(stream, packets):
                    self._user_sound().decode(stream, packets)
                case EndInput(stream):
                    self._user_sound().end(stream)
                case DropInput(stream):
                    self._user_sound().drop(stream)
                case Close(code, reason):
                    self._outbox.close(code, reason)
        self._limit_buffers()
        self._set_timer()
        if self._outbox.queued_bytes > self._services.config.max_queued_bytes:
            self._cut_slow_consumer()

    def _user_sound(self) -> InputAudio:
        if self._input is None:
            assert self._session.input_audio
            self._input = InputAudio(
                self._session.input_audio,
                self._model,
                self._services.bridge,
                self._services.audio_pool,
                self._events.put_nowait,
            )
        return self._input

    def _limit_buffers(self) -> None:
        audio = self._session.audio
        if audio and not self._limited:
            self._limited = True
            self._link.limit(buffer_bytes(bytes_per_s(audio)))

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._session.next_deadline_ms()
        if deadline_ms is not None:
            when_s = deadline_ms / 1000
            self._timer = self._loop.call_at(when_s, self._events.put_nowait, "tick")

    def _cut_slow_consumer(self) -> None:
        logger.warning(
            "sess=%s status=slow_consumer queued_bytes=%d", self._id, self._outbox.queued_bytes
        )
        self._services.metrics.slow_consumers.inc()
        self._link.force_close(CLOSE_SLOW_CONSUMER, "slow_consumer: the socket takes too little")
        raise _SocketDone

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            if self._input:
                self._input.close()
            for effect in self._session.disconnected(self._now_ms()):
                # A session that broke half-way also leaves messages that nobody can be sent.
                if isinstance(effect, ToEngine):
                    self._services.bridge.send(effect.command)

    def _note_message(self, message: object) -> None:
        if isinstance(message, ResponseDone):
            self._services.metrics.responses.labels(message.status).inc()
            if message.metrics.ttfa_ms is not None:
                self._services.metrics.ttfa_s.observe(message.metrics.ttfa_ms / 1000)

    def _note_sound(self, piece: Piece) -> None:
        self._services.metrics.audio_s.inc(len(piece.pcm) / self._model.rate_hz)
        self._services.metrics.clipped_samples.inc(clipped_samples(piece.pcm))

    def _expiry(self, caller: Caller) -> Expiry | None:
        if caller.token is None:
            return None
        in_ms = int((caller.token.expires_at - time.time()) * 1000)
        return Expiry(self._now_ms() + in_ms, caller.token.expires_at)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
