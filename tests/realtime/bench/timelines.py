"""Responses made by hand, on a clock that starts at their request."""

from __future__ import annotations

from typing import Any

from realtime.bench.trip import Piece, Trip


def pieces(*times: tuple[float, float]) -> tuple[Piece, ...]:
    """Pieces of `(arrival, duration)` in seconds."""
    return tuple(Piece(at_s, duration_s) for at_s, duration_s in times)


def trip(*times: tuple[float, float], **fields: Any) -> Trip:
    """A response that was asked for at 0 and ended with its last piece, unless told otherwise."""
    ended_s = times[-1][0] if times else 1.0
    made = {"sent_s": 0.0, "ended_s": ended_s, "ending": "completed", "pieces": pieces(*times)}
    return Trip(**made | fields)
