"""The ASGI application: routes, lifespan, and the rules that hold for all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket

import realtime
from realtime.protocol.codec import choose_subprotocol
from realtime.protocol.errors import ProtocolError
from realtime.protocol.query import RESUMES, start_from_query
from realtime.server import engine_api, models, speech, tokens_api, voices
from realtime.server.connection import Connection
from realtime.server.credentials import RETRY_AFTER_S, SOCKET_PATH, Credentials, caller_of
from realtime.server.errors import EXPOSED_HEADERS, HANDLERS, ApiError
from realtime.server.loop_lag import watch_loop_lag
from realtime.server.origin import OriginCheck
from realtime.server.resource import nothing_else
from realtime.server.services import Services
from realtime.session.pins import NO_PINS, Pins

WEB_DIR = Path(realtime.__file__).parents[1] / "web"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


def create_app(services: Services) -> Starlette:
    """Return the application; its lifespan starts and stops the engine."""
    origins = services.config.cors_origins
    app = Starlette(
        routes=routes(services),
        middleware=[
            Middleware(OriginCheck, config=services.config),
            Middleware(
                CORSMiddleware,
                allow_origins=origins,
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=EXPOSED_HEADERS,
            ),
            Middleware(Credentials, config=services.config, keys=services.keys),
        ],
        exception_handlers=HANDLERS,
        lifespan=_lifespan,
    )
    app.state.services = services
    return app


def routes(services: Services) -> list[BaseRoute]:
    """Return every route; the page comes last because it takes any path."""
    return [
        WebSocketRoute(SOCKET_PATH, speech_socket),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        *speech.routes(services),
        *voices.routes(services),
        *models.routes(services),
        *engine_api.routes(services),
        *tokens_api.routes(services),
        nothing_else("/v1"),
        Mount("/", Page(directory=WEB_DIR, html=True)),
    ]


@contextlib.asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    services: Services = app.state.services
    services.bridge.start()
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(services.start(), name="start")
        watching = tasks.create_task(watch_loop_lag(services.metrics.loop_lag_s), name="loop-lag")
        try:
            yield
        finally:
            starting.cancel()
            watching.cancel()
            await services.bridge.stop()
            services.audio_pool.shutdown()


async def speech_socket(websocket: WebSocket) -> None:
    """`GET /v1/speech`: protocol v1. Refusals are HTTP answers before the upgrade."""
    services: Services = websocket.app.state.services
    try:
        subprotocol, encoding = choose_subprotocol(websocket.scope["subprotocols"])
        token = caller_of(websocket.scope).token
        pins = Pins(token.session) if token else NO_PINS
        start = start_from_query(websocket.query_params.multi_items())
    except ProtocolError as error:
        refusal = ApiError(400, error.code, error.message, param=error.param)
        return await _refuse(websocket, refusal)
    if services.models.talker is None:
        message = "no model of this server holds dialogues; POST /v1/audio/speech speaks"
        return await _refuse(websocket, ApiError(404, "unsupported", message))
    if unready := services.why_not_ready():
        return await _refuse(websocket, _overloaded(503, f"the server is {unready}"))
    most, attached = services.config.max_sessions, services.sessions.attached
    resumes = bool(websocket.query_params.get(RESUMES))
    if attached >= (2 * most if resumes else most):
        return await _refuse(websocket, _overloaded(429, "too many sessions are open"))
    must_resume = attached >= most or caller_of(websocket.scope).must_resume
    await websocket.accept(subprotocol)
    await Connection(
        websocket, encoding, services, pins=pins, start=start, must_resume=must_resume
    ).run()


def _overloaded(status: int, message: str) -> ApiError:
    return ApiError(status, "overloaded", message, retry_after_s=RETRY_AFTER_S)


async def _refuse(websocket: WebSocket, error: ApiError) -> None:
    body = {"error": error.body()}
    await websocket.send_denial_response(JSONResponse(body, error.status, error.headers))


async def healthz(request: Request) -> Response:
    """Answer as long as the event loop turns."""
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """200 while new work is welcome, else 503 and why."""
    services: Services = request.app.state.services
    unready = services.why_not_ready()
    return JSONResponse({"status": unready or "ready"}, 503 if unready else 200)


async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    services: Services = request.app.state.services
    return Response(services.metrics.render(), media_type="text/plain; version=0.0.4")


class Page(StaticFiles):
    """The demo page, allowed to load nothing but what lies beside it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Cache-Control"] = "no-cache"
            await send(message)

        await super().__call__(scope, receive, send_with_policy)
