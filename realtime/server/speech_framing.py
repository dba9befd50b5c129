"""How sound travels in the body of an HTTP answer: as it is, or in server-sent events."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any, Literal, Protocol

from realtime.server.errors import ApiError

FinishReason = Literal["stop", "length"]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How an answer ended, and what it took."""

    finish_reason: FinishReason
    text_tokens: int
    voice_frames: int
    frames: int
    audio_ms: int
    ttfa_ms: int

    def fields(self) -> dict[str, Any]:
        """As answers tell it."""
        input_tokens = self.text_tokens + self.voice_frames
        usage = {
            "input_tokens": input_tokens,
            "output_tokens": self.frames,
            "total_tokens": input_tokens + self.frames,
            "input_token_details": {
                "text_tokens": self.text_tokens,
                "audio_tokens": self.voice_frames,
            },
        }
        return {
            "usage": usage,
            "finish_reason": self.finish_reason,
            "audio_duration_ms": self.audio_ms,
            "ttfa_ms": self.ttfa_ms,
        }


class Framing(Protocol):
    """Turns the parts of an answer into parts of a body."""

    @property
    def content_type(self) -> str:
        """The HTTP content type."""

    def sound(self, data: bytes) -> bytes:
        """Frame a piece of the file, which is not empty."""

    def end(self, outcome: Outcome) -> bytes:
        """Frame the end of a complete answer."""

    def failure(self, error: ApiError) -> bytes | None:
        """Frame the end of a broken answer; None where only a broken connection can tell."""


class RawFraming:
    """The file, byte for byte."""

    def __init__(self, content_type: str) -> None:
        self.content_type = content_type

    def sound(self, data: bytes) -> bytes:
        return data

    def end(self, outcome: Outcome) -> bytes:
        return b""

    def failure(self, error: ApiError) -> bytes | None:
        return None


class SseFraming:
    """OpenAI's events `speech.audio.delta` and `.done`, and `speech.audio.error`, with extras."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, response_format: str, rate_hz: int, channels: int) -> None:
        self._extras = {
            "response_format": response_format,
            "sample_rate": rate_hz,
            "channels": channels,
        }
        self._index = 0

    def sound(self, data: bytes) -> bytes:
        audio = base64.b64encode(data).decode("ascii")
        fields = {"audio": audio} | self._extras | {"index": self._index}
        self._index += 1
        return _event("speech.audio.delta", fields)

    def end(self, outcome: Outcome) -> bytes:
        return _event("speech.audio.done", outcome.fields())

    def failure(self, error: ApiError) -> bytes | None:
        partial = {"partial_audio": True, "action": "discard"}
        return _event("speech.audio.error", {"error": error.body() | partial})


def _event(name: str, fields: dict[str, Any]) -> bytes:
    data = json.dumps({"type": name} | fields, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()
