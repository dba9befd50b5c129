"""The sessions of this server, with a socket or waiting for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from realtime.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from realtime.server.live_session import LiveSession


class Sessions:
    """Finds sessions by id. At most `max_detached` wait for a socket; the first to wait goes."""

    def __init__(self, max_detached: int) -> None:
        self._max_detached = max_detached
        self._by_id: dict[str, LiveSession] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(list(self._by_id.values()))

    @property
    def attached(self) -> int:
        """How many have a socket."""
        return sum(live.is_attached for live in self._by_id.values())

    def find(self, session_id: str | None) -> LiveSession:
        """Return the session; raises `ProtocolError` for one that is gone or never was."""
        live = self._by_id.get(session_id or "")
        if live is None or live.is_closed:
            raise ProtocolError(
                "session_not_found",
                f"there is no session {session_id!r} here; start another and give it the history",
                scope="connection",
                param="session_id",
            )
        return live

    def add(self, live: LiveSession) -> None:
        """Take a session in."""
        self._by_id[live.id] = live

    def discard(self, live: LiveSession) -> None:
        """Forget a session that is over."""
        self._by_id.pop(live.id, None)

    def detached(self, live: LiveSession) -> None:
        """Note that a session lost its socket; if too many wait, let the first of them go."""
        if live.id in self._by_id:
            self._by_id[live.id] = self._by_id.pop(live.id)
        waiting = [live for live in self._by_id.values() if not live.is_attached]
        for live in waiting[: max(0, len(waiting) - self._max_detached)]:
            live.let_go()
