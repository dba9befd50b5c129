"""Which pages may talk to the server: checks of `Host` and `Origin` before anything else.

A web page anywhere can make its visitor's browser connect to a server on the visitor's machine.
`Origin` says which page asks; `Host` gives away a foreign name that was pointed at our address (DNS
rebinding).
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from realtime.server.config import LOOPBACK_HOSTS, ServerConfig


class OriginCheck:
    """ASGI middleware: 403, before a WebSocket is accepted, for a foreign `Origin` or `Host`."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._origins = frozenset(config.cors_origins)
        self._hosts = frozenset(config.allowed_hosts)
        if not self._hosts and not config.insecure and not config.has_keys:
            self._hosts = LOOPBACK_HOSTS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        complaint = self._complaint(scope) if scope["type"] in ("http", "websocket") else None
        if complaint is None:
            await self._app(scope, receive, send)
            return
        error = {"message": complaint, "type": "invalid_request_error", "code": "forbidden"}
        await JSONResponse({"error": error | {"param": None}}, 403)(scope, receive, send)

    def _complaint(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        name = urlsplit(f"//{host}").hostname or ""
        if self._hosts and name not in self._hosts:
            return f"host {name!r} is not served here; see --allowed-hosts"
        if origin is None or origin in self._origins or _netloc(origin) == host.lower():
            return None
        return f"origin {origin!r} may not use this server; see --cors-origins"


def _netloc(origin: str) -> str:
    parts = urlsplit(origin)
    return parts.netloc.lower() if parts.scheme in ("http", "https") else ""
