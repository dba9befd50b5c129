"""A player with a jitter buffer: it starts, and starts again, once enough sound is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from realtime.bench.trip import Piece

BUFFERS_MS = (0, 40, 100, 200)
"""The jitter buffers that are simulated; 0 plays whatever is there."""


@dataclasses.dataclass(frozen=True, slots=True)
class Playback:
    """What a listener got: when sound began, and how long and how often it stood still."""

    start_s: float
    stall_s: float
    stalls: int


def play(pieces: Sequence[Piece], buffer_ms: float) -> Playback | None:
    """Play pieces in the order they came; None of nothing.

    The player waits until `buffer_ms` of sound are there, or the last piece; when it runs dry it
    waits for as much again. Times are on the clock of the pieces.
    """
    start_s: float | None = None
    waiting_since_s: float | None = pieces[0].at_s if pieces else None
    dry_at_s = waiting_s = held_s = 0.0
    stalls = 0
    for index, piece in enumerate(pieces):
        if waiting_since_s is None and piece.at_s > dry_at_s:
            waiting_since_s, held_s = dry_at_s, 0.0
            stalls += 1
        if waiting_since_s is None:
            dry_at_s += piece.duration_s
            continue
        held_s += piece.duration_s
        if held_s * 1000 >= buffer_ms or index == len(pieces) - 1:
            if start_s is None:
                start_s = piece.at_s
            else:
                waiting_s += piece.at_s - waiting_since_s
            waiting_since_s, dry_at_s = None, piece.at_s + held_s
    return None if start_s is None else Playback(start_s, waiting_s, stalls)
