"""How fast text may come: so many deltas at once, then so many a second."""

from __future__ import annotations


class Pace:
    """A token bucket: holds at most `burst`, and gains `per_s` each second."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_ms = per_s / 1000
        self._burst = burst
        self._left = burst
        self._at_ms = 0.0

    def take(self, now_ms: float) -> float:
        """Take one and return 0; where none is left return in how many ms there is one."""
        self._fill(now_ms)
        if self._left < 1:
            return (1 - self._left) / self._per_ms
        self._left -= 1
        return 0.0

    def reserve(self, now_ms: float) -> float:
        """Take one in any case; return in how many ms it may be used."""
        self._fill(now_ms)
        self._left -= 1
        return max(0.0, -self._left / self._per_ms)

    def _fill(self, now_ms: float) -> None:
        gained = max(0.0, now_ms - self._at_ms) * self._per_ms
        self._left = min(self._burst, self._left + gained)
        self._at_ms = max(self._at_ms, now_ms)
