"""The WebSocket transport: uvicorn's protocol, with small buffers the application can watch.

What lies in a socket's buffers was sent but cannot be taken back, and counts as heard with flow
`none`; so it is kept under half a second, and the application asks for room before it decides what
to send next.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Protocol

from starlette.websockets import WebSocket
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

EXTENSION = "moss.link"
MIN_BUFFER_BYTES = 8 * 1024
BUFFER_MS = 500
ABORT_AFTER_S = 2.0

# uvicorn logs each handshake with its query, where a token may be, and at DEBUG every frame.
_quiet = logging.getLogger(f"{__name__}.uvicorn")
_quiet.setLevel(logging.WARNING)


class Link(Protocol):
    """What a connection may ask of its transport."""

    def limit(self, buffered_bytes: int) -> None:
        """Hold at most that much in user space and in the kernel, 80 ms messages given."""

    async def room(self) -> None:
        """Wait until the transport takes the next message at once, or is lost."""

    def force_close(self, code: int, reason: str) -> None:
        """Close although the peer takes nothing: say why if there is room, then cut."""


class SpeechSocketProtocol(WebSocketsSansIOProtocol):
    """One accepted socket; reachable by the application through `link_of`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = self.conn.logger = _quiet
        self.conn.debug = False

    async def run_asgi(self) -> None:
        """Run the application with this link in its scope."""
        extensions: dict[str, Any] = self.scope["extensions"]
        extensions[EXTENSION] = self
        self.limit(MIN_BUFFER_BYTES)
        await super().run_asgi()

    async def send(self, message: ASGISendEvent) -> None:
        """Send; a whole HTTP refusal completes the handshake too, else uvicorn logs an error."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True

    def limit(self, buffered_bytes: int) -> None:
        """Set both buffers.

        Linux doubles SO_SNDBUF, so a third of the bytes becomes two thirds; one message (80 of 500
        ms, a sixth) may lie above the high-water mark, which takes the last sixth.
        """
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffered_bytes // 3)
        self.transport.set_write_buffer_limits(high=buffered_bytes // 6)

    async def room(self) -> None:
        """Wait for the write buffer to be below its high-water mark."""
        await self.writable.wait()

    def force_close(self, code: int, reason: str) -> None:
        """Write the close frame past the full buffer and abort soon after."""
        if not self.close_sent and not self.transport.is_closing():
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.writable.set()  # whoever waits for room learns that it is over
        self.loop.call_later(ABORT_AFTER_S, self.transport.abort)


class _PlainLink:
    """For a server that gives no access to its transport, such as starlette's test client."""

    def limit(self, buffered_bytes: int) -> None:
        pass

    async def room(self) -> None:
        await asyncio.sleep(0)

    def force_close(self, code: int, reason: str) -> None:
        pass


def link_of(websocket: WebSocket) -> Link:
    """Return the transport of a WebSocket."""
    link: Link = websocket.scope.get("extensions", {}).get(EXTENSION) or _PlainLink()
    return link


def buffer_bytes(bytes_per_s: int) -> int:
    """Return how much of a stream may lie in buffers: half a second, or 8 KiB if that is more."""
    return max(MIN_BUFFER_BYTES, bytes_per_s * BUFFER_MS // 1000)
