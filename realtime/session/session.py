"""One dialogue as a state machine without I/O: messages and events in, effects out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from engine.api import Event, ModelInfo
from engine.models.realtime_prompt import RealtimePrompt
from realtime.protocol.errors import (
    CLOSE_GOING_AWAY,
    CLOSE_IDLE,
    CLOSE_NORMAL,
    CLOSE_PROTOCOL,
    CLOSE_TOKEN_EXPIRED,
    ProtocolError,
)
from realtime.protocol.messages import (
    AudioFormat,
    ClientMessage,
    InputFormat,
    Ping,
    Pong,
    SessionClose,
    SessionClosed,
    SessionGoingAway,
    SessionStart,
)
from realtime.session.dialogue import Dialogue
from realtime.session.effects import Close, Effect
from realtime.session.emitter import Emitter
from realtime.session.expiry import Expiry
from realtime.session.pins import NO_PINS, Pins
from realtime.session.settings import DEFAULT_CONFIG, SessionConfig, Voices

# Errors of clients that do not speak the protocol; too many close the socket.
_BAD: Final = frozenset({"bad_message", "unknown_type", "not_started"})
_CLOSE_CODES: Final = {"client": CLOSE_NORMAL, "idle": CLOSE_IDLE, "shutdown": CLOSE_GOING_AWAY}


class Session:
    """One dialogue over one socket.

    Milliseconds are of one monotonic clock. `new_id` gives row ids that are never reused. Effects
    are to be carried out before the next call. Client messages are applied in the order of their
    number `m`: a number seen before is ignored, a gap is refused. `pins` and `expiry` are what a
    client token says.
    """

    def __init__(
        self,
        *,
        session_id: str,
        model: ModelInfo,
        prompt: RealtimePrompt,
        voices: Voices,
        new_id: Callable[[], int],
        seed: int,
        now_ms: int,
        config: SessionConfig = DEFAULT_CONFIG,
        pins: Pins = NO_PINS,
        expiry: Expiry | None = None,
    ) -> None:
        self.id = session_id
        self._model = model
        self._prompt = prompt
        self._voices = voices
        self._new_id = new_id
        self._seed = seed
        self._config = config
        self._pins = pins
        self._expiry = expiry
        self._emitter = Emitter()
        self._dialogue: Dialogue | None = None
        self._awaited_m = 1
        self._bad_messages = 0
        self._heard_sense = False  # a valid message came
        self._opened_ms = now_ms
        self._last_message_ms = now_ms
        self._closed = False

    @property
    def audio(self) -> AudioFormat | None:
        """The negotiated sound; None before `session.start`."""
        return self._dialogue.speaking.settings.audio if self._dialogue else None

    @property
    def input_audio(self) -> InputFormat | None:
        """The negotiated sound of the user; None before `session.start`."""
        return self._dialogue.speaking.settings.input_audio if self._dialogue else None

    @property
    def is_closed(self) -> bool:
        """Whether the session is over; it then answers nothing."""
        return self._closed

    def receive(self, message: ClientMessage, now_ms: int) -> list[Effect]:
        """Apply a client message."""
        if self._closed:
            return []
        self._last_message_ms = now_ms
        try:
            if self._is_next(message.m):
                self._heard_sense = True
                self._apply(self._pins.apply(message), now_ms)
        except ProtocolError as error:
            error.reply_to = message.event_id
            self._refuse(error)
        return self._emitter.take()

    def receive_audio(self, data: bytes, now_ms: int) -> list[Effect]:
        """Take a binary audio frame of the client: a piece of what the user says."""
        if self._closed:
            return []
        self._last_message_ms = now_ms
        try:
            if not self._dialogue:
                raise ProtocolError("not_started", "send session.start before user audio")
            self._dialogue.user_audio.take(data)
        except ProtocolError as error:
            self._refuse(error)
        return self._emitter.take()

    def input_damaged(self, stream: int, problem: str) -> list[Effect]:
        """Note that part of a stream of user audio could not be decoded, and was left out."""
        if self._dialogue and not self._closed:
            self._dialogue.user_audio.damaged(stream, problem)
        return self._emitter.take()

    def reject(self, error: ProtocolError, now_ms: int) -> list[Effect]:
        """Answer a client message that `protocol.codec.decode_client` refused."""
        if self._closed:
            return []
        self._last_message_ms = now_ms
        try:
            if error.m is None or self._is_next(error.m):
                self._refuse(error)
        except ProtocolError as gap:
            gap.reply_to = error.reply_to
            self._refuse(gap)
        return self._emitter.take()

    def engine_event(self, event: Event, now_ms: int) -> list[Effect]:
        """Take an event of one of this session's rows or encode streams."""
        if self._dialogue and not self._closed:
            self._dialogue.engine_event(event, now_ms)
        return self._emitter.take()

    def transport_sent(self, stream: int, samples: int, last: bool, now_ms: int) -> list[Effect]:
        """Note that `samples` of the stream's sound are on the wire.

        Cumulative, per channel, at the model's rate (as given in `SendAudio.pcm`). `last`: the
        frame with `LAST_OF_RESPONSE` is out too, so `response.done` may follow.
        """
        if self._dialogue and not self._closed:
            self._dialogue.rows.sent(stream, samples, last, now_ms)
        return self._emitter.take()

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due; call it when `next_deadline_ms` has come."""
        if self._closed:
            return []
        if self._dialogue:
            self._dialogue.tick(now_ms)
        due_ms = self._silence_due_ms()
        if self._expiry and self._expiry.is_over(now_ms):
            self._close(CLOSE_TOKEN_EXPIRED, "the client token has expired")
        elif due_ms is not None and now_ms >= due_ms:
            if self._heard_sense:
                self._end("idle", now_ms, None)
            else:
                self._close(CLOSE_PROTOCOL, "no valid message came")
        elif self._expiry and self._dialogue and self._expiry.warns(now_ms):
            in_ms = self._expiry.at_ms - now_ms
            self._emitter.send(SessionGoingAway(in_ms=in_ms, reason="expiry"))
        return self._emitter.take()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has to be called next."""
        if self._closed:
            return None
        deadlines = [self._silence_due_ms()]
        if self._expiry:
            deadlines.append(self._expiry.next_ms(started=self._dialogue is not None))
        if self._dialogue:
            deadlines.append(self._dialogue.next_deadline_ms())
        return min((d for d in deadlines if d is not None), default=None)

    def disconnected(self, now_ms: int) -> list[Effect]:
        """End the session because its socket is gone; only engine commands come back."""
        if self._dialogue and not self._closed:
            self._dialogue.stop_rows()
        self._closed = True
        return self._emitter.take()

    def shut_down(self, now_ms: int) -> list[Effect]:
        """End the session because the server stops."""
        if not self._closed:
            self._end("shutdown", now_ms, None)
        return self._emitter.take()

    def _is_next(self, m: int) -> bool:
        """Whether this is the message awaited; one applied before is not. A gap raises."""
        if m > self._awaited_m:
            raise ProtocolError(
                "sequence_gap",
                f"message {self._awaited_m} is awaited, this is {m}",
                scope="connection",
                expected=self._awaited_m,
                param="m",
            )
        if m < self._awaited_m:
            return False
        self._awaited_m += 1
        return True

    def _apply(self, message: ClientMessage, now_ms: int) -> None:
        match message:
            case Ping():
                pong = Pong(reply_to=message.event_id, t=message.t, server_t=now_ms)
                self._emitter.send(pong)
            case SessionStart():
                self._start(message)
            case SessionClose():
                if message.keep:
                    text = "keep is not supported by this server yet: a closed session is gone"
                    raise ProtocolError("unsupported", text, param="keep")
                self._end("client", now_ms, message.event_id)
            case _ if self._dialogue:
                self._dialogue.apply(message, now_ms)
            case _:
                raise ProtocolError("not_started", f"send session.start before {message.type}")

    def _start(self, message: SessionStart) -> None:
        if self._dialogue:
            raise ProtocolError("bad_message", "the session has started already")
        self._dialogue = Dialogue(
            message,
            session_id=self.id,
            emitter=self._emitter,
            model=self._model,
            prompt=self._prompt,
            voices=self._voices,
            new_row=self._new_id,
            seed=self._seed,
            config=self._config,
            expires_at=self._expiry.at_unix_s if self._expiry else None,
        )

    def _refuse(self, error: ProtocolError) -> None:
        self._emitter.refuse(error)
        if error.code in _BAD:
            self._bad_messages += 1
            if self._bad_messages >= self._config.max_bad_messages:
                self._close(CLOSE_PROTOCOL, f"{self._bad_messages} bad messages")

    def _silence_due_ms(self) -> int | None:
        """When the socket closes if no message comes."""
        if not self._heard_sense:
            return self._opened_ms + self._config.start_timeout_ms
        if self._dialogue and any(self._dialogue.speaking.active()):
            return None
        return self._last_message_ms + self._config.limits.idle_timeout_s * 1000

    def _end(
        self, reason: Literal["client", "idle", "shutdown"], now_ms: int, reply_to: str | None
    ) -> None:
        if self._dialogue:
            self._dialogue.cancel_all(now_ms)
        self._emitter.send(SessionClosed(reply_to=reply_to, reason=reason))
        self._close(_CLOSE_CODES[reason], reason)

    def _close(self, code: int, reason: str) -> None:
        if self._dialogue:
            self._dialogue.stop_rows()
        self._emitter.emit(Close(code, reason))
        self._closed = True
