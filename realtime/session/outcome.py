"""How a response ended: the engine's reasons in the protocol's words."""

from __future__ import annotations

import dataclasses
from typing import Final

from engine.api import Done, Refused
from realtime.protocol.errors import RETRYABLE, ErrorCode
from realtime.protocol.messages import ErrorBody, Status
from realtime.session.restarts import RESTARTED


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Status of a `response.done`, with its reason or error."""

    status: Status
    reason: str | None = None
    error: ErrorBody | None = None


TEXT_TIMEOUT = Outcome("incomplete", "text_timeout")


def of_done(done: Done, *, has_text: bool, has_sound: bool) -> Outcome:
    """Translate the last event of a row."""
    if done.reason == "completed":
        if has_text and not has_sound:
            return _failed("no_audio", "the model made no sound for this text")
        return Outcome("completed")
    if done.reason == "cancelled":
        return _failed("internal", "the engine stopped this response")
    if done.reason in ("max_audio", "context"):
        return Outcome("incomplete", done.reason)
    if done.reason.startswith("guard"):
        return Outcome("incomplete", "guard")
    if done.error.startswith(RESTARTED):
        return _ENGINE_RESTARTED
    return _failed("internal", "the engine failed while making this response")


def of_refused(refused: Refused) -> Outcome:
    """Translate a refusal."""
    if refused.code == "overloaded":
        message = refused.message or "there is no capacity for another response now"
        return _failed("overloaded", message, refused.retry_after_ms)
    if refused.code == RESTARTED:
        return _ENGINE_RESTARTED
    return _failed("internal", f"the engine refused this response: {refused.message}")


def _failed(code: ErrorCode, message: str, retry_after_ms: int | None = None) -> Outcome:
    error = ErrorBody(
        code=code,
        message=message,
        retryable=code in RETRYABLE,
        retry_after_ms=retry_after_ms,
    )
    return Outcome("failed", error=error)


_ENGINE_RESTARTED: Final = _failed(
    "engine_restarted", "the engine restarted; send the response again"
)
