"""One socket: what it brings goes to its session, which may be one that an earlier socket left."""

from __future__ import annotations

import logging

from starlette.websockets import WebSocket, WebSocketDisconnect

from realtime.protocol.codec import Encoding, decode_client
from realtime.protocol.errors import CLOSE_CONCURRENCY, CLOSE_NORMAL, ProtocolError
from realtime.protocol.frames import is_audio
from realtime.protocol.messages import SessionStart
from realtime.server.credentials import RETRY_AFTER_S, caller_of
from realtime.server.live_session import LiveSession
from realtime.server.logs import log_received
from realtime.server.services import Services
from realtime.server.transport import buffer_bytes, link_of
from realtime.session.pins import NO_PINS, Pins

logger = logging.getLogger(__name__)


class Connection:
    """Serves one accepted WebSocket until it closes; the session may go on without it.

    One that `must_resume` is one too many unless it takes the place of a session's earlier socket.
    """

    def __init__(
        self,
        websocket: WebSocket,
        encoding: Encoding,
        services: Services,
        *,
        pins: Pins = NO_PINS,
        start: SessionStart | None = None,
        must_resume: bool = False,
    ) -> None:
        self.encoding = encoding
        self.caller = caller_of(websocket.scope)
        self._websocket = websocket
        self._services = services
        self._link = link_of(websocket)
        self._live = LiveSession(self, services, pins)
        self._start = start
        self._must_resume = must_resume

    async def run(self) -> None:
        """Read until the socket is gone."""
        for_good = False
        try:
            if self._start and self._must_resume:
                self._refuse_place(None)
            elif self._start:
                self._live.begin(self._start)
            while True:
                message = await self._websocket.receive()
                if message["type"] == "websocket.disconnect":
                    for_good = message.get("code") == CLOSE_NORMAL
                    return
                text: str | None = message.get("text")
                self._take(message["bytes"] if text is None else text)
        except Exception:
            logger.exception("sess=%s status=broken", self._live.id)
            self._live.break_down()
        finally:
            self._live.detach(self, for_good=for_good)

    def _take(self, data: str | bytes) -> None:
        if not self._live.speaks_over(self):
            return  # a newer socket has taken over, and brings again what this one still had
        if isinstance(data, bytes) and is_audio(data):
            if self._must_resume:
                return self._refuse_place(None)
            return self._live.receive_audio(data)
        try:
            message = decode_client(data, self.encoding, self._services.session_config.limits)
        except ProtocolError as error:
            return self._live.reject(error)
        log_received(logger, self._live.id, message, with_text=self._services.config.log_text)
        if isinstance(message, SessionStart) and message.resume:
            self._resume(message)
        elif self._must_resume:
            self._refuse_place(message.event_id)
        else:
            self._live.receive(message)

    def _refuse_place(self, reply_to: str | None) -> None:
        text = "as many sessions are open as may be, and this one takes the place of none"
        error = ProtocolError("rate_limited", text, scope="connection", reply_to=reply_to)
        error.retry_after_ms = RETRY_AFTER_S * 1000
        self._live.turn_away(error, CLOSE_CONCURRENCY)

    def _resume(self, message: SessionStart) -> None:
        """Leave the session made for this socket for the one that the client names."""
        try:
            if self._live.is_started:
                raise ProtocolError("bad_message", "the session has started already")
            live = self._services.sessions.find(message.session_id)
            live.resume(self, message)
        except ProtocolError as error:
            error.reply_to = message.event_id
            return self._live.reject(error)  # without its `m`, which does not count
        self._live.detach(self)
        self._live = live
        self._must_resume = False

    # --- for the session

    def limit(self, bytes_per_s: int) -> None:
        """Say how much sound there is, so that little of it lies in buffers."""
        self._link.limit(buffer_bytes(bytes_per_s))

    async def room(self) -> None:
        """Wait until the socket takes a message, or is gone."""
        await self._link.room()

    async def send(self, data: str | bytes) -> bool:
        """Send; false when the socket is gone."""
        try:
            if isinstance(data, str):
                await self._websocket.send_text(data)
            else:
                await self._websocket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError):  # it closed, or we are closing it
            return False
        return True

    async def close(self, code: int, reason: str) -> None:
        """Close once everything before is sent."""
        try:
            await self._websocket.close(code, reason)
        except (WebSocketDisconnect, RuntimeError):
            return

    def force_close(self, code: int, reason: str) -> None:
        """Close although the peer takes nothing."""
        self._link.force_close(code, reason)
