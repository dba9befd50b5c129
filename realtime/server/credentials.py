"""Who asks, and whether they may: checked before any handler or upgrade.

A server with keys takes `Authorization: Bearer KEY` or `X-API-Key: KEY` on every API path. Browsers
cannot set headers on a WebSocket and must not hold a key: there, a client token comes as the
subprotocol `bearer.TOKEN`, beside the protocol's own, or as `?token=`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from realtime.protocol.query import CREDENTIAL, RESUMES
from realtime.server.client_tokens import PREFIX, ClientToken, TokenError, verify
from realtime.server.config import ServerConfig
from realtime.server.errors import ApiError
from realtime.server.keys import ApiKeys

RETRY_AFTER_S = 2
SOCKET_PATH = "/v1/speech"
SUBPROTOCOL_PREFIX = "bearer."
_CALLER = "moss.caller"
_READABLE_WITH_TOKEN = ("/v1/models", "/v1/voices", "/v1/audio/voices")

Kind = Literal["sessions", "requests"]


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the holder of a key, or of a token that key gave out; nobody without keys.

    `must_resume`: it has as many sockets as it may, and may have this one in place of another.
    """

    key_name: str | None = None
    token: ClientToken | None = None
    must_resume: bool = False


def caller_of(scope: Scope) -> Caller:
    """Return who asks."""
    caller: Caller = scope[_CALLER]
    return caller


class Credentials:
    """ASGI middleware: 401, 403 and 429 for API paths; the page and health checks stay open."""

    def __init__(
        self,
        app: ASGIApp,
        config: ServerConfig,
        keys: ApiKeys,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._keys = keys
        self._now_s = now_s
        self._limits: dict[Kind, int] = {
            "sessions": config.max_sessions_per_key,
            "requests": config.max_requests_per_key,
        }
        self._open: Counter[tuple[Kind, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not _is_guarded(scope["path"]):
            await self._app(scope, receive, send)
            return
        async with contextlib.AsyncExitStack() as stack:
            try:
                caller = self._identify(scope)
                kind: Kind = "sessions" if scope["type"] == "websocket" else "requests"
                resumes = kind == "sessions" and bool(_parameter(scope, RESUMES))
                is_one_more = stack.enter_context(self._counted(caller, kind, resumes))
                scope[_CALLER] = dataclasses.replace(caller, must_resume=is_one_more)
            except ApiError as error:
                headers = dict(error.headers)
                if error.status == 401:
                    headers["WWW-Authenticate"] = "Bearer"
                refusal = JSONResponse({"error": error.body()}, error.status, headers)
                await refusal(scope, receive, send)
                return
            await self._app(scope, receive, send)

    def _identify(self, scope: Scope) -> Caller:
        if not self._keys:
            return Caller()
        headers = Headers(scope=scope)
        from_header = _header_credential(headers)
        presented = from_header or _browser_credential(scope)
        if not presented:
            message = "send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
            raise ApiError(401, "unauthorized", message)
        if presented.startswith(PREFIX):
            return self._token_holder(presented, scope, headers)
        key = self._keys.find(presented)
        if key is None:
            raise ApiError(401, "unauthorized", "this is no API key of this server")
        if not from_header:
            message = (
                "API keys are taken in headers only, for a URL ends up in logs and a page must not "
                "hold a key; get a client token from POST /v1/client_tokens"
            )
            raise ApiError(401, "unauthorized", message)
        return Caller(key.name)

    def _token_holder(self, presented: str, scope: Scope, headers: Headers) -> Caller:
        try:
            token = verify(presented, self._keys, self._now_s())
        except TokenError as error:
            raise ApiError(401, error.code, str(error)) from None
        origin = headers.get("origin")
        if token.origin is not None and origin != token.origin:
            message = f"the client token is for pages of {token.origin}, not of {origin}"
            raise ApiError(403, "forbidden", message)
        if not _in_scope_of_tokens(scope):
            message = (
                "a client token opens sessions and reads voices and models; "
                f"{scope.get('method', 'GET')} {scope['path']} needs an API key"
            )
            raise ApiError(403, "forbidden", message)
        return Caller(token.key_name, token)

    @contextlib.contextmanager
    def _counted(self, caller: Caller, kind: Kind, resumes: bool) -> Iterator[bool]:
        """Hold a place of the key, and of the token, for as long as the request lasts.

        A socket that a network has swallowed still has its place. So one that `resumes` its session
        may be one more, as long as it is no more than twice as many; gives whether it is.
        """
        holders, is_one_more = [], False
        if caller.key_name is not None:
            holders.append((caller.key_name, f"key {caller.key_name!r}", self._limits[kind]))
        if caller.token and caller.token.max_sessions and kind == "sessions":
            holders.append((caller.token.id, "the client token", caller.token.max_sessions))
        for holder, label, limit in holders:
            is_full = limit and self._open[kind, holder] >= limit
            is_one_more = is_one_more or bool(is_full)
            if is_full and not (resumes and self._open[kind, holder] < 2 * limit):
                message = f"{label} has {limit} {kind} open, as many as it may; try again later"
                raise ApiError(429, "rate_limited", message, retry_after_s=RETRY_AFTER_S)
        places = [(kind, holder) for holder, _, _ in holders]
        self._open.update(places)
        try:
            yield is_one_more
        finally:
            self._open.subtract(places)
            for place in places:
                if not self._open[place]:
                    del self._open[place]


def _is_guarded(path: str) -> bool:
    return path.startswith("/v1/") or path == "/metrics"


def _in_scope_of_tokens(scope: Scope) -> bool:
    path: str = scope["path"]
    if scope["type"] == "websocket":
        return path == SOCKET_PATH
    readable = any(path == root or path.startswith(f"{root}/") for root in _READABLE_WITH_TOKEN)
    return readable and scope["method"] in ("GET", "HEAD")


def _header_credential(headers: Headers) -> str:
    scheme, _, credential = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credential.strip():
        return credential.strip()
    return headers.get("x-api-key", "").strip()


def _browser_credential(scope: Scope) -> str:
    if scope["type"] != "websocket":
        return ""
    for name in scope["subprotocols"]:
        if name.startswith(SUBPROTOCOL_PREFIX):
            return str(name.removeprefix(SUBPROTOCOL_PREFIX))
    return _parameter(scope, CREDENTIAL)


def _parameter(scope: Scope, name: str) -> str:
    query: bytes = scope["query_string"]
    return parse_qs(query.decode("latin-1")).get(name, [""])[0]
