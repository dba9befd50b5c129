"""Whether an engine moves: its heartbeats carry a counter that grows with every tick."""

from __future__ import annotations

from collections.abc import Callable

from engine.api import Stats


class Progress:
    """Since when an engine has stood still, on a clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._moved_at = clock()
        self._last: Stats | None = None

    def note(self, stats: Stats) -> None:
        """Take a heartbeat."""
        # An idle engine has nothing to make progress with: its heartbeat is enough.
        if not stats.rows_running or not self._last or stats.progress != self._last.progress:
            self._moved_at = self._clock()
        self._last = stats

    def age_s(self) -> float:
        """Seconds since it last showed that it moves."""
        return self._clock() - self._moved_at
