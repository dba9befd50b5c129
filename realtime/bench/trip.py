"""What a client saw of one response: when it asked, when sound came, how it ended.

Times are seconds on the client's monotonic clock, from the start of the run; only `ServerClock`
holds the server's own.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

Ending = Literal["completed", "incomplete", "cancelled", "failed", "refused", "lost"]
"""`incomplete` hit a cap, `refused` had no place, `lost` is a client of ours that vanished."""


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Sound that came in one chunk of a body or one message of a socket."""

    at_s: float
    duration_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class ServerClock:
    """What the server says that it took, on its own clock."""

    queue_ms: float | None = None
    ttfa_ms: float | None = None
    text_to_audio_ms: float | None = None
    rtf: float | None = None
    starved_ms: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Trip:
    """One response. `audible_s` is when its first sample above -50 dBFS came.

    With text that is written while it is spoken: `first_text_s` is its first delta, `speakable_s`
    the one that completed the first twelve tokens (or the text), `starved` the spans in which the
    server waited for text. `cancel_s` is when the user barged in, be it that all had come before;
    `last_sound_s` when sound last came, whether it was to be heard or not. `made_ms` and
    `heard_ms` are how much was made, and heard.
    """

    sent_s: float
    ended_s: float
    ending: Ending
    pieces: tuple[Piece, ...] = ()
    error: str = ""
    audible_s: float | None = None
    slow_reader: bool = False
    first_text_s: float | None = None
    speakable_s: float | None = None
    starved: tuple[tuple[float, float], ...] = ()
    cancel_s: float | None = None
    last_sound_s: float | None = None
    made_ms: float | None = None
    heard_ms: float | None = None
    server: ServerClock | None = None

    @property
    def audio_s(self) -> float:
        """Length of the sound that came."""
        return sum(piece.duration_s for piece in self.pieces)

    @property
    def is_ok(self) -> bool:
        """Whether it is a success: it ended as it should and has sound."""
        return self.ending in ("completed", "incomplete", "cancelled") and bool(self.pieces)

    @property
    def is_whole(self) -> bool:
        """Whether it is a success that was not cut short by the client."""
        return self.is_ok and self.ending != "cancelled"
