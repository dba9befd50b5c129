"""Where the listener is in a response: what it said last, else what the clock says."""

from __future__ import annotations

import dataclasses

from realtime.protocol.messages import HeardSource


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """A position, where it comes from, and whether it was cut to what had been sent."""

    ms: float
    source: HeardSource
    clamped: bool = False


class PlaybackPosition:
    """Follows the playback of one response."""

    def __init__(self) -> None:
        self.sent_ms = 0.0
        self.done = False
        self._begins_ms: float | None = None  # when the listener begins to play, at the earliest
        self._reported_ms: float | None = None
        self._reported_at_ms = 0
        self._playing = True

    def sent(self, sent_ms: float, now_ms: int, not_before_ms: float = 0.0) -> None:
        """Sound up to `sent_ms` is on the wire; what came before it plays until `not_before_ms`."""
        if self._begins_ms is None and sent_ms > 0:
            self._begins_ms = max(now_ms, not_before_ms)
        self.sent_ms = max(self.sent_ms, sent_ms)

    def report(self, played_ms: float, state: str, now_ms: int) -> float:
        """Take the listener's word; returns the position, at most what was sent."""
        position_ms = min(max(played_ms, 0.0, self._reported_ms or 0.0), self.sent_ms)
        self._reported_ms = position_ms
        self._reported_at_ms = now_ms
        self._playing = state == "playing"
        self.done = self.done or state == "done"
        return position_ms

    def heard(self, now_ms: int) -> Heard:
        """Estimate the position now."""
        if self._reported_ms is not None:
            since_ms = now_ms - self._reported_at_ms if self._playing else 0
            return Heard(min(self._reported_ms + since_ms, self.sent_ms), "playback")
        if self._begins_ms is not None:
            since_ms = max(0, int(now_ms - self._begins_ms))
            return Heard(min(float(since_ms), self.sent_ms), "clock")
        return Heard(0.0, "none")

    def claimed(self, position_ms: float) -> Heard:
        """Take a position the client names with an interrupt; it wins over estimates."""
        heard_ms = min(max(position_ms, 0.0), self.sent_ms)
        return Heard(heard_ms, "client", clamped=heard_ms != position_ms)

    def ends_ms(self, now_ms: int) -> float:
        """Estimate when everything sent so far will have been heard."""
        return now_ms + self.sent_ms - self.heard(now_ms).ms
