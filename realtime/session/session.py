"""One dialogue as a state machine without I/O: messages and events in, effects out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final, Protocol

from engine.models.realtime_prompt import RealtimePrompt

from engine.api import Event, ModelInfo, U16Codes
from realtime.protocol.errors import ProtocolError
from realtime.protocol.limits import DEFAULT_LIMITS, Limits
from realtime.protocol.messages import AudioFormat, ClientMessage
from realtime.session.effects import Effect


class Voice(Protocol):
    """An encoded reference: `codes` are u16 `[F, n_vq]`."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def codes(self) -> U16Codes: ...


class Voices(Protocol):
    """Where a session looks voices up (the server's `VoiceStore` is one)."""

    def get(self, name_or_id: str, /) -> Voice | None: ...
    def default(self) -> Voice | None: ...
    def names(self) -> list[str]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class SessionConfig:
    """What the server decides for all sessions."""

    server: str = "moss-realtime"
    limits: Limits = DEFAULT_LIMITS
    stall_flush_ms: int = 800
    ack_max_ahead_ms: int = 4000
    prebuffer_ms: int = 0
    warm_pin_s: float = 600.0
    opus_pre_skip: int = 312
    start_timeout_ms: int = 10_000
    max_bad_messages: int = 10


DEFAULT_CONFIG: Final = SessionConfig()


class Session:
    """One dialogue.

    Milliseconds are of one monotonic clock. `new_id` gives row ids that are never reused. Every
    method that returns effects expects them to be carried out before the next call.
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
    ) -> None:
        raise NotImplementedError

    @property
    def audio(self) -> AudioFormat | None:
        """The negotiated sound; None before `session.start`."""
        raise NotImplementedError

    def receive(self, message: ClientMessage, now_ms: int) -> list[Effect]:
        """Apply a client message."""
        raise NotImplementedError

    def receive_audio(self, data: bytes, now_ms: int) -> list[Effect]:
        """Take a binary audio frame of the client."""
        raise NotImplementedError

    def reject(self, error: ProtocolError, now_ms: int) -> list[Effect]:
        """Answer a client message that `protocol.codec` refused."""
        raise NotImplementedError

    def engine_event(self, event: Event, now_ms: int) -> list[Effect]:
        """Take an event of one of this session's rows."""
        raise NotImplementedError

    def transport_sent(self, stream: int, samples: int, now_ms: int) -> list[Effect]:
        """Note that `samples` of the stream's sound are on the wire.

        Cumulative, per channel, at the model's rate (as given in `SendAudio.pcm`); once the frame
        with `LAST_OF_RESPONSE` is out it equals everything given.
        """
        raise NotImplementedError

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due; call it when `next_deadline_ms` has come."""
        raise NotImplementedError

    def next_deadline_ms(self) -> int | None:
        """When `tick` has to be called next."""
        raise NotImplementedError

    def disconnected(self, now_ms: int) -> list[Effect]:
        """End the session because its socket is gone; only engine commands come back."""
        raise NotImplementedError
