"""What can go wrong for a client."""

from __future__ import annotations


class MossError(Exception):
    """Base of the SDK's errors."""


class PlaybackUnavailable(MossError):
    """No sound can be played here; the text says what is missing."""


class ServerRefused(MossError):
    """The server did not open a session; `status` is its HTTP status, 0 once the socket was open.

    `code` is the protocol's error code where there is one.
    """

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class ResponseFailed(MossError):
    """A request was not carried out; `code` is the protocol's error code."""

    def __init__(self, code: str, message: str, retryable: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retryable = retryable


class StreamInterrupted(MossError):
    """The socket closed before the end of what was asked for."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"the connection closed before the end (code {code}: {reason or '-'})")
        self.code = code
        self.reason = reason
