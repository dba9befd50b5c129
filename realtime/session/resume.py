"""Taking a session up again on another socket: who may, and until when."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from realtime.protocol.errors import ProtocolError


class ResumeTokens:
    """Tokens that open a session once each.

    The answer that carries the next token may be lost with its socket. So the one used last stays
    good until the client has been heard on the socket it opened: then it holds the next one.
    """

    def __init__(self, new_token: Callable[[], str]) -> None:
        self._new_token = new_token
        self._used: str | None = None
        self.current = new_token()

    def check(self, token: str) -> None:
        """Raise `ProtocolError` for a token that opens nothing."""
        good = (self.current, self._used)
        if not any(hmac.compare_digest(token.encode(), t.encode()) for t in good if t):
            raise ProtocolError(
                "resume_rejected",
                "this resume token is not the session's newest; each can be used once",
                scope="connection",
                param="resume.token",
            )

    def rotate(self, token: str) -> None:
        """Use `token` up; `current` is a new one."""
        self._used, self.current = token, self._new_token()

    def confirm(self) -> None:
        """The client answered: it holds `current`, and nothing else is good any more."""
        self._used = None


class Detachment:
    """Since when a session has had no socket, and when it is given up."""

    def __init__(self, resume_ttl_s: int) -> None:
        self._resume_ttl_s = resume_ttl_s
        self._since_ms: int | None = None

    @property
    def is_possible(self) -> bool:
        """Whether a session is kept at all."""
        return self._resume_ttl_s > 0

    @property
    def is_on(self) -> bool:
        """Whether there is no socket."""
        return self._since_ms is not None

    def begin(self, now_ms: int) -> None:
        """The socket is gone."""
        self._since_ms = now_ms

    def end(self) -> None:
        """There is a socket again."""
        self._since_ms = None

    def due_ms(self) -> int | None:
        """When the session is given up; None while it has a socket."""
        return None if self._since_ms is None else self._since_ms + 1000 * self._resume_ttl_s
