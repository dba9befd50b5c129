"""What happens to work under way when the engine dies: the next engine goes on with it."""

from __future__ import annotations

from typing import Final

RESTARTED: Final = "engine_restarted"
"""Begins the error of what an engine's death has ended, and is the protocol's code for it."""
_MOST_DEATHS: Final = 3


class Restarts:
    """How often the engine died under one piece of work, and whether the next should try it."""

    def __init__(self) -> None:
        self._deaths = 0
        self._frames = -1

    def allow(self, frames: int) -> bool:
        """Count a death after so many frames.

        False when several in a row brought no frame: it may be this work that kills engines.
        """
        self._deaths = self._deaths + 1 if frames == self._frames else 1
        self._frames = frames
        return self._deaths <= _MOST_DEATHS
