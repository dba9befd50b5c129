"""A session and all that outlives its sockets: what is not sent yet, and what was sent last."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Iterable
from typing import Literal

from realtime.protocol.errors import (
    CLOSE_INTERNAL,
    CLOSE_REPLACED,
    CLOSE_SLOW_CONSUMER,
    ProtocolError,
)
from realtime.protocol.frames import Flags
from realtime.protocol.messages import (
    ClientMessage,
    Codec,
    ResponseDone,
    ServerMessage,
    SessionStart,
    SessionStarted,
)
from realtime.server.audio import clipped_samples
from realtime.server.bridge import RowEvent
from realtime.server.credentials import Caller
from realtime.server.input_audio import InputAudio, InputDamaged, InputEvent
from realtime.server.outbox import Closing, Piece
from realtime.server.services import Services
from realtime.server.writer import Socket, Writer
from realtime.session.effects import (
    Close,
    DecodeInput,
    DropAudio,
    DropInput,
    Effect,
    EndInput,
    Listen,
    Reopen,
    Send,
    SendAudio,
    ToEngine,
)
from realtime.session.expiry import Expiry
from realtime.session.pins import Pins
from realtime.session.session import Session

logger = logging.getLogger(__name__)

Cue = Literal["tick", "shut_down", "over"]


class _Over(Exception):
    """The session is over: ends its tasks."""


class LiveSession:
    """Carries out a session's effects and keeps its time; sockets come and go."""

    def __init__(self, socket: Socket, services: Services, pins: Pins) -> None:
        self.id = f"sess_{secrets.token_hex(8)}"
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[RowEvent | InputEvent | Cue] = asyncio.Queue()
        self._input: InputAudio | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._model = services.talker.ready_info
        self._encoding = socket.encoding
        self._key_name = socket.caller.key_name
        self._writer = Writer(
            self, socket, self._model, services.audio_pool, services.config.slow_consumer_s
        )
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
        self._task = self._loop.create_task(self._run(), name=self.id)
        services.sessions.add(self)

    @property
    def is_attached(self) -> bool:
        """Whether there is a socket."""
        return self._writer.socket is not None

    def speaks_over(self, socket: Socket) -> bool:
        """Whether it is this socket."""
        return self._writer.socket is socket

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
                tasks.create_task(self._writer.run(), name=f"{self.id}-write")
        except* _Over:
            pass
        except* Exception:
            logger.exception("sess=%s status=broken", self.id)
            self._cut(CLOSE_INTERNAL, "internal error")
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

    def turn_away(self, error: ProtocolError, code: int) -> None:
        """Close a socket for which there is no place, saying why."""
        self.reject(error)
        self._writer.close(code, error.message)

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
        missed, gaps = self._writer.missed(message.resume)
        expiry = self._expiry(socket.caller)
        started = self._session.resumed(message, gaps, expiry, self._now_ms())
        self._cut(CLOSE_REPLACED, "the session went on over a newer socket")
        self._writer.attach(socket, started, missed)
        self._settle()
        logger.info("sess=%s status=resumed replayed=%d gaps=%d", self.id, len(missed), len(gaps))

    def detach(self, socket: Socket, *, for_good: bool = False) -> None:
        """Note that a socket is gone, unless a newer one has replaced it.

        The client left for good, or may come back.
        """
        if not self.speaks_over(socket):
            return
        self._writer.detach()
        self._apply(self._session.disconnected(self._now_ms(), for_good=for_good))
        self._services.sessions.detached(self)
        logger.info("sess=%s status=detached", self.id)

    def break_down(self) -> None:
        """End the session because of a bug in it."""
        self._cut(CLOSE_INTERNAL, "internal error")
        self._events.put_nowait("over")

    def _cut(self, code: int, reason: str) -> None:
        if self._writer.socket:
            self._writer.socket.force_close(code, reason)

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

    # --- effects

    def _apply(self, effects: Iterable[Effect]) -> None:
        bridge = self._services.bridge
        for effect in effects:
            match effect:
                case Send(message):
                    self._note_message(message)
                    if isinstance(message, SessionStarted):
                        self._writer.use_format(message.audio)
                    self._writer.put(message)
                case SendAudio():
                    self._writer.put_audio(effect)
                case DropAudio(stream):
                    self._writer.drop(stream)
                case ToEngine(command):
                    bridge.send(command)
                case Reopen(command):
                    bridge.reopen(command)
                case Listen(row, response_id):
                    bridge.rows.name(row, f"sess={self.id} resp={response_id}")
                    bridge.listen(row, self._events.put_nowait)
                case DecodeInput(stream, packets, audio):
                    self._user_sound(audio.codec).decode(stream, packets, audio.sample_rate)
                case EndInput(stream) if self._input:
                    self._input.end(stream)
                case DropInput(stream) if self._input:
                    self._input.drop(stream)
                case Close(code, reason):
                    self._writer.close(code, reason)
        self._settle()

    def _user_sound(self, codec: Codec) -> InputAudio:
        if self._input is None:
            self._input = InputAudio(
                codec,
                self._model,
                self._services.bridge,
                self._services.audio_pool,
                self._events.put_nowait,
            )
        return self._input

    def _settle(self) -> None:
        """See to deadlines, queues and the session's end after anything has changed."""
        self._set_timer()
        is_full = self._writer.queued_bytes > self._services.config.max_queued_bytes
        if self._writer.socket and is_full:
            self.too_slow(self._writer.socket)
        elif not self._writer.socket and (is_full or self._session.is_closed):
            self.let_go()

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._session.next_deadline_ms()
        if deadline_ms is not None:
            when_s = deadline_ms / 1000
            self._timer = self._loop.call_at(when_s, self._events.put_nowait, "tick")

    # --- what the writer tells

    def sent(self, piece: Piece) -> None:
        """A piece of sound is on the wire."""
        self._services.metrics.audio_s.inc(len(piece.pcm) / self._model.rate_hz)
        self._services.metrics.clipped_samples.inc(clipped_samples(piece.pcm))
        samples = piece.stream.samples_given
        last = Flags.LAST_OF_RESPONSE in piece.flags
        now_ms = self._now_ms()
        self._apply(self._session.transport_sent(piece.handle, samples, last, now_ms))

    async def close(self, socket: Socket, closing: Closing) -> None:
        """Close the socket; the session is over or waits for another."""
        if self._session.is_closed:
            await socket.close(closing.code, closing.reason)
            raise _Over
        self.detach(socket)
        await socket.close(closing.code, closing.reason)

    def too_slow(self, socket: Socket) -> None:
        """Cut a socket that takes too little; its session waits for another."""
        queued_bytes = self._writer.queued_bytes
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

    def _expiry(self, caller: Caller) -> Expiry | None:
        if caller.token is None:
            return None
        at_s = self._loop.time() + caller.token.expires_at - time.time()
        return Expiry(math.ceil(1000 * at_s), caller.token.expires_at)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
