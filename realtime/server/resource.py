"""Routes by path and method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Handler = Callable[[Request], Awaitable[Response]]

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def resource(path: str, **handlers: Handler) -> Route:
    """A route that answers the methods named, and every other one with 405.

    Starlette's own routes would pass those on to the page, which answers 404.
    """
    allowed = ", ".join(handlers)

    async def dispatch(request: Request) -> Response:
        handler = handlers.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            raise HTTPException(405, headers={"Allow": allowed})
        return await handler(request)

    return Route(path, dispatch, methods=_METHODS)


def nothing_else(prefix: str) -> Route:
    """The last route of an API: every path that no other route took is 404, not a page."""

    async def refuse(request: Request) -> Response:
        raise HTTPException(404)

    return Route(prefix + "/{path:path}", refuse, methods=_METHODS)
