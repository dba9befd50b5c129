"""Server-sent events of `/v1/audio/speech`, as OpenAI frames them."""

from __future__ import annotations

import json
from typing import Any

from realtime.bench.trip import Ending, ServerClock


class EventStream:
    """Cuts a body that comes in pieces of any size into the objects of its events."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The events that are complete with this data. Raises `ValueError` for what is no JSON."""
        *whole, self._held = (self._held + data).replace(b"\r\n", b"\n").split(b"\n\n")
        return [event for block in whole if (event := _event(block)) is not None]


def _event(block: bytes) -> dict[str, Any] | None:
    lines = (line.removeprefix(b"data:") for line in block.split(b"\n") if line[:5] == b"data:")
    text = b"\n".join(lines).strip()
    if not text or text == b"[DONE]":
        return None
    event = json.loads(text)
    if not isinstance(event, dict):
        raise ValueError(f"an event is {type(event).__name__}, not an object")
    return event


def ending_of(done: dict[str, Any]) -> tuple[Ending, float | None, ServerClock | None]:
    """How `speech.audio.done` says that it ended, how many ms were made, and the server's clock."""
    ending: Ending = "incomplete" if done.get("finish_reason") == "length" else "completed"
    ttfa_ms = done.get("ttfa_ms")
    clock = None if ttfa_ms is None else ServerClock(ttfa_ms=ttfa_ms)
    return ending, done.get("audio_duration_ms"), clock
