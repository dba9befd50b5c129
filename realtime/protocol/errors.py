"""Error codes, their scope and whether trying again can help; close codes of the socket."""

from __future__ import annotations

from typing import Final, Literal

Scope = Literal["response", "session", "connection"]

ErrorCode = Literal[
    "bad_message",
    "unknown_type",
    "invalid_field",
    "not_started",
    "unknown_response",
    "duplicate_response",
    "unknown_item",
    "bad_audio",
    "unsupported_codec",
    "unsupported",
    "voice_not_found",
    "text_too_long",
    "rate_limited",
    "overloaded",
    "text_timeout",
    "max_audio",
    "no_audio",
    "session_not_found",
    "resume_rejected",
    "unauthorized",
    "sequence_gap",
    "engine_restarted",
    "internal",
]

RETRYABLE: Final[frozenset[str]] = frozenset(
    {"rate_limited", "overloaded", "sequence_gap", "engine_restarted", "internal"}
)

CLOSE_NORMAL: Final = 1000
CLOSE_GOING_AWAY: Final = 1001
CLOSE_TOO_BIG: Final = 1009
CLOSE_INTERNAL: Final = 1011
CLOSE_OVERLOADED: Final = 1013
CLOSE_PROTOCOL: Final = 4400
CLOSE_TOKEN_EXPIRED: Final = 4401
CLOSE_IDLE: Final = 4408
CLOSE_REPLACED: Final = 4409
CLOSE_SLOW_CONSUMER: Final = 4413
CLOSE_CONCURRENCY: Final = 4429


class ProtocolError(Exception):
    """A client message that is not applied.

    `message` is safe to show. `param` is the path of the offending field. `m` and `reply_to` are
    the message's own number and `event_id` where they could be read. `retry_after_ms` and
    `expected` (the number that was awaited, for `sequence_gap`) are set where they apply.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        param: str | None = None,
        scope: Scope = "session",
        response_id: str | None = None,
        retry_after_ms: int | None = None,
        expected: int | None = None,
        m: int | None = None,
        reply_to: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.param = param
        self.scope: Scope = scope
        self.response_id = response_id
        self.retry_after_ms = retry_after_ms
        self.expected = expected
        self.m = m
        self.reply_to = reply_to

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in RETRYABLE
