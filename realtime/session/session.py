"""One dialogue as a state machine without I/O: messages and events in, effects out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
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
    Gap,
    Ping,
    Pong,
    Resume,
    SessionClose,
    SessionClosed,
    SessionGoingAway,
    SessionStart,
    SessionStarted,
)
from realtime.session.dialogue import Dialogue
from realtime.session.effects import Close, Effect
from realtime.session.emitter import Emitter
from realtime.session.expiry import Expiry
from realtime.session.numbering import Numbering
from realtime.session.pins import NO_PINS, Pins
from realtime.session.resume import Detachment, ResumeTokens
from realtime.session.settings import DEFAULT_CONFIG, SessionConfig, Voices

# Errors of clients that do not speak the protocol; too many close the socket.
_BAD: Final = frozenset({"bad_message", "unknown_type", "not_started"})
_CLOSE_CODES: Final = {"client": CLOSE_NORMAL, "idle": CLOSE_IDLE, "shutdown": CLOSE_GOING_AWAY}


class Session:
    """One dialogue, over one socket at a time; it outlives them by `resume_ttl_s`.

    Milliseconds are of one monotonic clock. `new_id` gives row ids that are never reused,
    `new_token` secrets. Effects are to be carried out before the next call. Client messages are
    applied in the order of their number `m`: a number seen before is ignored, a gap is refused.
    `pins` and `expiry` are what a client token says.
    """

    def __init__(
        self,
        *,
        session_id: str,
        model: ModelInfo,
        prompt: RealtimePrompt,
        voices: Voices,
        new_id: Callable[[], int],
        new_token: Callable[[], str],
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
        self._tokens = ResumeTokens(new_token)
        self._detachment = Detachment(config.resume_ttl_s)
        self._numbering = Numbering(config.limits)
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
    def awaited_m(self) -> int:
        """Number of the client message that comes next."""
        return self._numbering.awaited_m

    @property
    def is_started(self) -> bool:
        """Whether `session.start` was applied."""
        return self._dialogue is not None

    @property
    def is_speaking(self) -> bool:
        """Whether any response is not done."""
        return self._dialogue is not None and any(self._dialogue.speaking.active())

    @property
    def is_closed(self) -> bool:
        """Whether the session is over; it then answers nothing."""
        return self._closed

    def receive(self, message: ClientMessage, now_ms: int) -> list[Effect]:
        """Apply a client message."""
        if self._closed:
            return []
        self._last_message_ms = now_ms
        self._tokens.confirm()
        try:
            if self._numbering.take(message, now_ms):
                self._heard_sense = True
                self._apply(self._pins.apply(message), now_ms)
        except ProtocolError as error:
            error.reply_to = message.event_id
            self._refuse(error)
        return self._emitter.take()

    def begin(self, message: SessionStart, now_ms: int) -> list[Effect]:
        """Start as the handshake asked: its query stands for `session.start`, without a number."""
        self._heard_sense = True
        try:
            self._apply(self._pins.apply(message), now_ms)
        except ProtocolError as error:
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
            self._dialogue.receive_audio(data)
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
            if self._numbering.take_unreadable(error.m):
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
        due_ms = self._waiting_due_ms()
        if self._expiry and self._expiry.is_over(now_ms):
            self._expiry = None
            self._let_go(CLOSE_TOKEN_EXPIRED, "the client token has expired", now_ms)
        elif due_ms is not None and now_ms >= due_ms:
            if self._detachment.is_on:
                self._vanish()
            else:
                self._end_silence(now_ms)
        elif self._expiry and self._dialogue and self._expiry.warns(now_ms):
            in_ms = self._expiry.at_ms - now_ms
            self._emitter.send(SessionGoingAway(in_ms=in_ms, reason="expiry"))
        return self._emitter.take()

    def _end_silence(self, now_ms: int) -> None:
        if not self._heard_sense:
            self._close(CLOSE_PROTOCOL, "no valid message came")
        elif self._can_wait:
            self._let_go(CLOSE_IDLE, "idle", now_ms)
        else:
            self._end("idle", now_ms, None)

    @property
    def _can_wait(self) -> bool:
        """Whether there is something to come back to."""
        return self._dialogue is not None and self._detachment.is_possible

    def next_deadline_ms(self) -> int | None:
        """When `tick` has to be called next."""
        if self._closed:
            return None
        deadlines = [self._waiting_due_ms()]
        if self._expiry:
            deadlines.append(self._expiry.next_ms(started=self._dialogue is not None))
        if self._dialogue:
            deadlines.append(self._dialogue.next_deadline_ms())
        return min((d for d in deadlines if d is not None), default=None)

    def disconnected(self, now_ms: int, *, for_good: bool) -> list[Effect]:
        """The socket is gone: wait for another one, or end if the client left `for_good`.

        A session that cannot wait ends as well. Only engine commands come back.
        """
        if for_good or not self._can_wait:
            self._vanish()
        elif not self._detachment.is_on:
            self._detachment.begin(now_ms)
        self._expiry = None  # it was the socket's
        return self._emitter.take()

    def check_token(self, resume: Resume) -> None:
        """Raise `ProtocolError` unless the session may be taken up with this token."""
        self._tokens.check(resume.token)

    def resumed(
        self, message: SessionStart, gaps: Sequence[Gap], expiry: Expiry | None, now_ms: int
    ) -> SessionStarted:
        """Go on over another socket; the answer is the first thing that it carries."""
        assert self._dialogue
        assert message.resume
        self._tokens.rotate(message.resume.token)
        self._detachment.end()
        self._expiry = expiry
        self._last_message_ms = now_ms
        return dataclasses.replace(
            self._started(message.event_id),
            resumed=True,
            last_m=self._numbering.awaited_m - 1,
            next_input_seq=self._dialogue.user_audio.next_seq,
            items=self._dialogue.item_refs(),
            gaps=tuple(gaps) or None,
        )

    def going_away(self, in_ms: int) -> list[Effect]:
        """Warn that the server is about to stop."""
        if self._dialogue and not self._closed:
            self._emitter.send(SessionGoingAway(in_ms=in_ms, reason="drain"))
        return self._emitter.take()

    def shut_down(self, now_ms: int) -> list[Effect]:
        """End the session because the server stops."""
        if not self._closed:
            self._end("shutdown", now_ms, None)
        return self._emitter.take()

    def _apply(self, message: ClientMessage, now_ms: int) -> None:
        match message:
            case Ping():
                pong = Pong(reply_to=message.event_id, t=message.t, server_t=now_ms)
                self._emitter.send(pong)
            case SessionStart():
                self._start(message)
            case SessionClose():
                self._close_as_asked(message, now_ms)
            case _ if self._dialogue:
                self._dialogue.apply(message, now_ms)
            case _:
                raise ProtocolError("not_started", f"send session.start before {message.type}")

    def _close_as_asked(self, message: SessionClose, now_ms: int) -> None:
        if not message.keep:
            self._end("client", now_ms, message.event_id)
        elif self._can_wait:
            self._let_go(CLOSE_NORMAL, "kept", now_ms)
        else:
            text = "there is nothing to keep: the session has not started or cannot be resumed"
            raise ProtocolError("unsupported", text, param="keep")

    def _start(self, message: SessionStart) -> None:
        if self._dialogue:
            raise ProtocolError("bad_message", "the session has started already")
        if message.session_id is not None or message.resume is not None:
            text = "session_id and resume go together; the server names new sessions"
            raise ProtocolError("invalid_field", text, param="session_id")
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
        )
        self._dialogue.begin(self._started(message.event_id))

    def _started(self, reply_to: str | None) -> SessionStarted:
        assert self._dialogue
        return dataclasses.replace(
            self._dialogue.started(reply_to),
            resume_token=self._tokens.current if self._detachment.is_possible else None,
            expires_at=self._expiry.at_unix_s if self._expiry else None,
        )

    def _refuse(self, error: ProtocolError) -> None:
        self._emitter.refuse(error)
        if error.code in _BAD:
            self._bad_messages += 1
            if self._bad_messages >= self._config.max_bad_messages:
                self._close(CLOSE_PROTOCOL, f"{self._bad_messages} bad messages")

    def _waiting_due_ms(self) -> int | None:
        """When the session is given up if no socket comes, or its socket if no message does."""
        if self._detachment.is_on:
            return self._detachment.due_ms()
        if not self._heard_sense:
            return self._opened_ms + self._config.start_timeout_ms
        if self.is_speaking:
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
        self._vanish()
        self._emitter.emit(Close(code, reason))

    def _let_go(self, code: int, reason: str, now_ms: int) -> None:
        """Close the socket and, where that is possible, wait for another one."""
        if not self._can_wait:
            return self._close(code, reason)
        self._detachment.begin(now_ms)
        self._emitter.emit(Close(code, reason))

    def _vanish(self) -> None:
        if self._dialogue and not self._closed:
            self._dialogue.stop_rows()
        self._closed = True
