"""A session and all that outlives its sockets: what is not sent yet, and what was sent last."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Iterable
from typing import Literal, Protocol

from realtime.protocol.codec import Encoding, encode
from realtime.protocol.errors import (
    CLOSE_INTERNAL,
    CLOSE_REPLACED,
    CLOSE_SLOW_CONSUMER,
    ProtocolError,
)
from realtime.protocol.frames import AudioFrame, Flags
from realtime.protocol.messages import (
    ClientMessage,
    ResponseAudio,
    ResponseDone,
    ServerMessage,
    SessionStart,
)
from realtime.server.audio import clipped_samples
from realtime.server.audio_stream import bytes_per_s
from realtime.server.bridge import RowEvent
from realtime.server.credentials import Caller
from realtime.server.input_audio import InputAudio, InputDamaged, InputEvent
from realtime.server.outbox import Closing, Control, Outbox, Piece
from realtime.server.services import Services
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
from realtime.session.pins import Pins
from realtime.session.ring import ReplayRing, Sent, SentFrame
from realtime.session.session import Session

logger = logging.getLogger(__name__)

Cue = Literal["tick", "shut_down", "over"]


class Socket(Protocol):
    """What a session needs of the connection that it speaks over now."""

    @property
    def encoding(self) -> Encoding: ...
    @property
    def caller(self) -> Caller: ...

    def limit(self, bytes_per_s: int) -> None:
        """Say how much sound there is, so that little of it lies in buffers."""

    async def room(self) -> None:
        """Wait until the socket takes a message, or is gone."""

    async def send(self, data: str | bytes) -> bool:
        """Send; false when the socket is gone."""

    async def close(self, code: int, reason: str) -> None:
        """Close once everything before is sent."""

    def force_close(self, code: int, reason: str) -> None:
        """Close although the peer takes nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Again:
    """Encoded; of a stream's sound, or (None) a control message."""

    data: str | bytes
    stream: int | None = None


class _Over(Exception):
    """The session is over: ends its tasks."""


class LiveSession:
    """Carries out a session's effects: encodes sound, sends everything in order, keeps the time.

    One task writes, whichever socket there is, so that no piece of sound is encoded twice or out
    of order. Sockets come and go with `attach`, `resume` and `detach`.
    """

    def __init__(self, socket: Socket, services: Services, pins: Pins) -> None:
        self.id = f"sess_{secrets.token_hex(8)}"
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[RowEvent | InputEvent | Cue] = asyncio.Queue()
        self._input: InputAudio | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._model = services.bridge.models[0]
        self._encoding = socket.encoding
        self._key_name = socket.caller.key_name
        self._socket: Socket | None = socket
        self._first: deque[_Again] = deque()  # what a new socket carries before anything else
        self._lost: Socket | None = None  # takes nothing any more; its reader will say so
        self._outbox = Outbox(socket.encoding, self._model)
        self._ring = ReplayRing()
        self._session = Session(
            session_id=self.id,
            model=self._model,
            prompt=services.prompt,
            voices=services.voices,
            new_id=services.bridge.new_id,
            new_token=lambda: secrets.token_urlsafe(24),
            seed=secrets.randbits(48),
            now_ms=self._now_ms(),
            config=services.session_config,
            pins=pins,
            expiry=self._expiry(socket.caller),
        )
        self._limited: Socket | None = None
        self._task = self._loop.create_task(self._run(), name=self.id)
        services.sessions.add(self)

    @property
    def is_attached(self) -> bool:
        """Whether there is a socket."""
        return self._socket is not None

    def speaks_over(self, socket: Socket) -> bool:
        """Whether it is this socket."""
        return self._socket is socket

    @property
    def is_closed(self) -> bool:
        """Whether the session is over."""
        return self._session.is_closed

    @property
    def is_heard(self) -> bool:
        """Whether a socket waits for the end of a response."""
        return self.is_attached and self._session.is_speaking

    @property
    def is_started(self) -> bool:
        """Whether `session.start` was applied."""
        return self._session.is_started

    async def _run(self) -> None:
        """Write, and listen to the engine, until the session is over."""
        encoding, key = self._encoding, self._key_name
        logger.info("sess=%s status=open encoding=%s key=%s", self.id, encoding, key)
        self._set_timer()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen(), name=f"{self.id}-listen")
                tasks.create_task(self._write(), name=f"{self.id}-write")
        except* _Over:
            pass
        except* Exception:
            logger.exception("sess=%s status=broken", self.id)
            if self._socket:
                self._socket.force_close(CLOSE_INTERNAL, "internal error")
        finally:
            if self._timer:
                self._timer.cancel()
            self._stop_work()
            self._services.sessions.discard(self)
            logger.info("sess=%s status=closed", self.id)

    # --- what a socket brings

    def receive(self, message: ClientMessage) -> None:
        """Apply a client message."""
        self._apply(self._session.receive(message, self._now_ms()))

    def begin(self, message: SessionStart) -> None:
        """Start as the handshake asked."""
        self._apply(self._session.begin(message, self._now_ms()))

    def receive_audio(self, data: bytes) -> None:
        """Take a binary audio frame of the client."""
        self._apply(self._session.receive_audio(data, self._now_ms()))

    def reject(self, error: ProtocolError) -> None:
        """Answer a client message that could not be read."""
        self._apply(self._session.reject(error, self._now_ms()))

    def resume(self, socket: Socket, message: SessionStart) -> None:
        """Go on over a newer socket; the one before is closed. Raises `ProtocolError`."""
        assert message.resume
        if socket.caller.key_name != self._key_name:
            text = "the session belongs to another key"
            raise ProtocolError("resume_rejected", text, scope="connection")
        self._session.check_token(message.resume)
        if socket.encoding != self._encoding:
            raise ProtocolError(
                "resume_rejected",
                f"the session began with {self._encoding}; resume it with the same subprotocol",
                scope="connection",
            )
        missed, gaps = self._ring.missed(message.resume)
        expiry = self._expiry(socket.caller)
        started = self._session.resumed(message, gaps, expiry, self._now_ms())
        if self._socket:
            self._socket.force_close(CLOSE_REPLACED, "the session went on over a newer socket")
        self._socket = socket
        answer = _Again(encode(started, self._encoding))
        self._first = deque([answer, *(self._again(sent) for sent in missed)])
        self._outbox.wake()
        self._settle()
        logger.info("sess=%s status=resumed replayed=%d gaps=%d", self.id, len(missed), len(gaps))

    def detach(self, socket: Socket, *, for_good: bool = False) -> None:
        """Note that a socket is gone, unless a newer one has replaced it.

        The client left for good, or may come back.
        """
        if socket is not self._socket:
            return
        self._socket = None
        self._first.clear()
        self._outbox.stay_open()
        self._apply(self._session.disconnected(self._now_ms(), for_good=for_good))
        self._services.sessions.detached(self)
        logger.info("sess=%s status=detached", self.id)

    def break_down(self) -> None:
        """End the session because of a bug in it."""
        if self._socket:
            self._socket.force_close(CLOSE_INTERNAL, "internal error")
        self._events.put_nowait("over")

    # --- what the server brings

    def going_away(self, in_ms: int) -> None:
        """Warn that the server is about to stop."""
        self._apply(self._session.going_away(in_ms))

    def shut_down(self) -> None:
        """End the session because the server stops."""
        self._events.put_nowait("shut_down")

    def let_go(self) -> None:
        """End a session that has no socket."""
        self._events.put_nowait("over")

    async def _listen(self) -> None:
        while True:
            event = await self._events.get()
            now_ms = self._now_ms()
            if event == "over":
                raise _Over
            if event == "tick":
                self._apply(self._session.tick(now_ms))
            elif event == "shut_down":
                self._apply(self._session.shut_down(now_ms))
            elif isinstance(event, InputDamaged):
                self._apply(self._session.input_damaged(event.stream, event.problem))
            else:
                self._apply(self._session.engine_event(event, now_ms))

    # --- the writer

    async def _write(self) -> None:
        while True:
            socket = await self._socket_with_room()
            if self._first:
                await self._send(socket, self._first.popleft().data)
                continue
            match self._outbox.take():
                case Control(data, n):
                    if n is not None:
                        self._ring.add_message(n, data)
                    await self._send(socket, data)
                case Piece() as piece:
                    await self._send_piece(socket, piece)
                case Closing(code, reason):
                    await self._close(socket, code, reason)

    async def _socket_with_room(self) -> Socket:
        """Wait until there is something to send and a socket that takes it."""
        while True:
            socket = self._socket
            if socket in (None, self._lost) or not (self._first or self._outbox.has_entries):
                await self._outbox.news()
                continue
            assert socket
            try:
                async with asyncio.timeout(self._services.config.slow_consumer_s):
                    await socket.room()
            except TimeoutError:
                if socket is self._socket:
                    self._cut_slow_consumer(socket)
            if socket is self._socket and (self._first or self._outbox.has_entries):
                return socket

    async def _send(self, socket: Socket, data: str | bytes) -> None:
        if not await socket.send(data):
            self._lost = socket

    async def _close(self, socket: Socket, code: int, reason: str) -> None:
        if self._session.is_closed:
            await socket.close(code, reason)
            raise _Over
        self.detach(socket)
        await socket.close(code, reason)

    async def _send_piece(self, socket: Socket, piece: Piece) -> None:
        frame = await self._loop.run_in_executor(
            self._services.audio_pool, piece.stream.encode, piece.pcm, piece.flags, piece.epoch
        )
        if piece.stream.dropped:
            return
        if frame:
            length_ms = 1000 * len(piece.pcm) / self._model.rate_hz
            self._ring.add_frame(piece.response_id, frame, length_ms)
            data = self._on_the_wire(frame, piece.response_id)
            if socket is self._socket:
                await self._send(socket, data)
            elif self._socket:  # its replay was drawn up before this frame was there
                self._first.append(_Again(data, frame.stream))
        self._outbox.sent(piece)
        self._note_sound(piece)
        samples = piece.stream.samples_given
        last = Flags.LAST_OF_RESPONSE in piece.flags
        now_ms = self._now_ms()
        self._apply(self._session.transport_sent(piece.handle, samples, last, now_ms))

    def _again(self, sent: Sent) -> _Again:
        if isinstance(sent, SentFrame):
            data = self._on_the_wire(sent.frame, sent.response_id)
            return _Again(data, sent.frame.stream)
        return _Again(sent.data)

    def _on_the_wire(self, frame: AudioFrame, response_id: str) -> str | bytes:
        assert self._session.audio
        if self._session.audio.transport == "binary":
            return frame.pack()
        message = ResponseAudio(
            response_id=response_id,
            stream=frame.stream,
            seq=frame.seq,
            pts=frame.pts,
            samples=frame.samples,
            epoch=frame.epoch,
            flags=frame.flags,
            data=frame.payload,
        )
        return encode(message, self._encoding)

    # --- effects

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
                    self._ring.drop(stream)
                    self._first = deque(sent for sent in self._first if sent.stream != stream)
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
        self._settle()

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

    def _settle(self) -> None:
        """See to buffers, deadlines and the session's end after anything has changed."""
        self._limit_buffers()
        self._set_timer()
        is_full = self._outbox.queued_bytes > self._services.config.max_queued_bytes
        if self._socket and is_full:
            self._cut_slow_consumer(self._socket)
        elif not self._socket and (is_full or self._session.is_closed):
            self.let_go()

    def _limit_buffers(self) -> None:
        audio, socket = self._session.audio, self._socket
        if audio and socket and self._limited is not socket:
            self._limited = socket
            socket.limit(bytes_per_s(audio))

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._session.next_deadline_ms()
        if deadline_ms is not None:
            when_s = deadline_ms / 1000
            self._timer = self._loop.call_at(when_s, self._events.put_nowait, "tick")

    def _cut_slow_consumer(self, socket: Socket) -> None:
        queued_bytes = self._outbox.queued_bytes
        logger.warning("sess=%s status=slow_consumer queued_bytes=%d", self.id, queued_bytes)
        self._services.metrics.slow_consumers.inc()
        socket.force_close(CLOSE_SLOW_CONSUMER, "slow_consumer: the socket takes too little")
        self.detach(socket)

    def _stop_work(self) -> None:
        if self._input:
            self._input.close()
        for effect in self._session.disconnected(self._now_ms(), for_good=True):
            # A session that broke half-way also leaves messages that nobody can be sent.
            if isinstance(effect, ToEngine):
                self._services.bridge.send(effect.command)

    def _note_message(self, message: ServerMessage) -> None:
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
        at_s = self._loop.time() + caller.token.expires_at - time.time()
        return Expiry(math.ceil(1000 * at_s), caller.token.expires_at)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
