"""Who may call a server with keys, and how much at once: every route, every way to say who."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.routing import Route, WebSocketRoute
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from engine.fake import FakeScript
from realtime.protocol.errors import CLOSE_CONCURRENCY, CLOSE_REPLACED, CLOSE_TOKEN_EXPIRED
from realtime.sdk import Client, ServerRefused
from realtime.server.app import routes
from realtime.server.client_tokens import ClientToken, sign
from tests.realtime.server.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running_server import RunningServer

pytestmark = pytest.mark.anyio

KEY, OTHER = "sk-0123456789abcdef", "sk-fedcba9876543210"
BEARER = {"Authorization": f"Bearer {KEY}"}
ORIGIN = "https://shop.example"
OPEN_PATHS = {"/healthz", "/readyz"}


@pytest.fixture
def guarded(run_server: Callable[..., RunningServer]) -> RunningServer:
    """A server with two keys, of which each may have two sessions and two requests."""
    return run_server(
        api_keys=(f"app:{KEY}", f"phone:{OTHER}"),
        max_sessions_per_key=2,
        max_requests_per_key=2,
        cors_origins=(ORIGIN,),
    )


@pytest.fixture
async def http(guarded: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guarded.base_url) as client:
        yield client


async def token_from(http: httpx.AsyncClient, key: str = KEY, **body: Any) -> str:
    answer = await http.post(
        "/v1/client_tokens", json=body, headers={"Authorization": f"Bearer {key}"}
    )
    assert answer.status_code == 201, answer.text
    token: str = answer.json()["token"]
    return token


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def refused(url: str, **options: Any) -> tuple[int, dict[str, Any], Any]:
    """Status, error and headers of a handshake that must fail."""
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, compression=None, **options)
    response = caught.value.response
    assert response.body is not None
    return response.status_code, json.loads(response.body)["error"], response.headers


async def test_every_route_but_the_health_checks_needs_a_key(
    guarded: RunningServer, http: httpx.AsyncClient
) -> None:
    seen = 0
    for route in routes(guarded.services):
        if isinstance(route, Route) and route.path not in OPEN_PATHS:
            path = re.sub(r"{.*?}", "x", route.path)
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                for headers in ({}, {"Authorization": "Bearer no"}, {"X-API-Key": KEY + "x"}):
                    answer = await http.request(method, path, headers=headers)
                    assert error_of(answer) == (401, "unauthorized"), (method, path)
                    assert answer.headers["WWW-Authenticate"] == "Bearer"
                    seen += 1
        elif isinstance(route, WebSocketRoute):
            url = guarded.base_url.replace("http", "ws", 1) + route.path
            status, error, _ = await refused(url)
            assert (status, error["code"]) == (401, "unauthorized")
            seen += 1
    assert seen > 60
    for path in (*OPEN_PATHS, "/", "/app.js"):
        assert (await http.get(path)).status_code == 200


async def test_a_key_opens_every_route_in_either_header(http: httpx.AsyncClient) -> None:
    for headers in (BEARER, {"Authorization": f"bearer  {KEY}"}, {"X-API-Key": OTHER}):
        assert (await http.get("/v1/models", headers=headers)).status_code == 200
        assert (await http.get("/metrics", headers=headers)).status_code == 200
        speech = await http.post("/v1/audio/speech", json={"input": "Hi."}, headers=headers)
        assert speech.status_code == 200


async def test_the_sdk_takes_a_key_or_a_token(
    guarded: RunningServer, http: httpx.AsyncClient
) -> None:
    for credential in (KEY, await token_from(http)):
        async with Client(guarded.base_url, api_key=credential) as session:
            pieces = [sound async for sound in session.say("Hello.")]
            assert b"".join(pieces)
    with pytest.raises(ServerRefused) as caught:
        await Client(guarded.base_url, api_key="sk-wrong-wrong-wrong").__aenter__()
    assert caught.value.status == 401
    assert "sk-wrong" not in str(caught.value)


async def test_a_browser_gives_its_token_beside_the_subprotocol_or_in_the_query(
    guarded: RunningServer, http: httpx.AsyncClient
) -> None:
    token = await token_from(http)
    offers = ["moss.v1.json", f"bearer.{token}"]
    for url, subprotocols in (
        (guarded.ws_url, offers),
        (guarded.ws_url, offers[::-1]),
        (f"{guarded.ws_url}?token={token}", ["moss.v1.json"]),
        (f"{guarded.ws_url}?token={token}", None),
    ):
        async with connect(url, subprotocols=subprotocols, compression=None) as websocket:
            assert websocket.subprotocol == ("moss.v1.json" if subprotocols else None)
            started = await RawClient(websocket).start()
            assert started["expires_at"] > time.time()
    # The header decides where both are present.
    status, _, _ = await refused(
        f"{guarded.ws_url}?token={token}", additional_headers={"X-API-Key": "sk-wrong"}
    )
    assert status == 401


async def test_a_real_key_is_refused_where_logs_or_pages_would_keep_it(
    guarded: RunningServer,
) -> None:
    for url, offers in (
        (f"{guarded.ws_url}?token={KEY}", None),
        (guarded.ws_url, ["moss.v1.json", f"bearer.{KEY}"]),
    ):
        status, error, _ = await refused(url, subprotocols=offers)
        assert (status, error["code"]) == (401, "unauthorized")
        assert "/v1/client_tokens" in error["message"]
        assert KEY not in str(error)


async def test_a_token_does_no_more_than_a_page_needs(
    guarded: RunningServer, http: httpx.AsyncClient
) -> None:
    headers = {"Authorization": f"Bearer {await token_from(http)}"}
    for path in ("/v1/voices", "/v1/audio/voices", "/v1/voices/heart", "/v1/models"):
        assert (await http.get(path, headers=headers)).status_code == 200
    for method, path in (
        ("POST", "/v1/audio/speech"),
        ("POST", "/v1/client_tokens"),
        ("POST", "/v1/voices"),
        ("DELETE", "/v1/voices/x"),
        ("GET", "/v1/voicesx"),
        ("GET", "/metrics"),
    ):
        assert error_of(await http.request(method, path, headers=headers)) == (403, "forbidden")


async def test_a_token_works_for_its_page_only(
    guarded: RunningServer, http: httpx.AsyncClient
) -> None:
    offers = ["moss.v1.json", f"bearer.{await token_from(http, origin=ORIGIN)}"]
    async with connect(guarded.ws_url, subprotocols=offers, origin=ORIGIN):
        pass
    for origin in (None, guarded.base_url):
        status, error, _ = await refused(guarded.ws_url, subprotocols=offers, origin=origin)
        assert (status, error["code"]) == (403, "forbidden")
        assert ORIGIN in error["message"]
    anywhere = ["moss.v1.json", f"bearer.{await token_from(http)}"]
    status, error, _ = await refused(
        guarded.ws_url, subprotocols=anywhere, origin="https://evil.example"
    )
    assert (status, error["code"]) == (403, "forbidden")


async def test_what_the_token_fixes_holds_for_its_sessions(
    guarded: RunningServer, http: httpx.AsyncClient
) -> None:
    token = await token_from(http, session={"voice": "heart", "generation": {"max_audio_s": 5}})
    async with connect(f"{guarded.ws_url}?token={token}") as websocket:
        client = RawClient(websocket)
        started = await client.start()
        assert (started["voice"], started["generation"]["max_audio_s"]) == ("heart", 5)
        await client.send("session.update", voice="male")
        error = await client.receive()
        assert isinstance(error, dict)
        assert (error["type"], error["code"], error["param"]) == ("error", "unauthorized", "voice")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"ttl_s": 3601}, "invalid_field", "ttl_s"),
        ({"ttl_s": 0}, "invalid_field", "ttl_s"),
        ({"max_sessions": 0}, "invalid_field", "max_sessions"),
        ({"origin": "shop.example"}, "invalid_field", "origin"),
        ({"origin": "https://shop.example/path"}, "invalid_field", "origin"),
        ({"scope": "all"}, "unknown_field", "scope"),
        ({"session": {"voice": 5}}, "invalid_field", "session.voice"),
        ({"session": {"history": []}}, "invalid_field", "session.history"),
        ({"session": {"metadata": {"a": "x" * 4000}}}, "too_large", "session"),
        ([], "invalid_json", None),
    ],
)
async def test_a_bad_request_for_a_token_is_told_why(
    http: httpx.AsyncClient, body: Any, code: str, param: str | None
) -> None:
    answer = await http.post("/v1/client_tokens", json=body, headers=BEARER)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param), error


async def test_a_token_lives_as_long_as_was_asked_for(http: httpx.AsyncClient) -> None:
    for body, ttl_s in ({}, 600), ({"ttl_s": 3600}, 3600):
        before = time.time()
        answer = await http.post("/v1/client_tokens", content=json.dumps(body), headers=BEARER)
        assert int(before) + ttl_s <= answer.json()["expires_at"] <= time.time() + ttl_s
        assert answer.headers["Cache-Control"] == "no-store"


async def test_a_server_without_keys_has_nothing_to_sign_with(
    running_server: RunningServer,
) -> None:
    async with httpx.AsyncClient(base_url=running_server.base_url) as http:
        answer = await http.post("/v1/client_tokens", headers=BEARER)
    assert error_of(answer) == (400, "no_keys")


@pytest.mark.slow
async def test_a_session_ends_with_its_token(
    guarded: RunningServer, http: httpx.AsyncClient
) -> None:
    token = await token_from(http, ttl_s=2)
    async with connect(f"{guarded.ws_url}?token={token}") as websocket:
        client = RawClient(websocket)
        started = await client.start()
        going = await client.receive()
        assert isinstance(going, dict)
        assert (going["type"], going["reason"]) == ("session.going_away", "expiry")
        with pytest.raises(ConnectionClosed) as caught:
            await client.receive()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == CLOSE_TOKEN_EXPIRED
    assert time.time() >= started["expires_at"]
    status, error, _ = await refused(f"{guarded.ws_url}?token={token}")
    assert (status, error["code"]) == (401, "token_expired")


async def test_an_expired_token_is_told_from_a_wrong_one(
    guarded: RunningServer, http: httpx.AsyncClient
) -> None:
    key = guarded.services.keys.find(KEY)
    assert key is not None
    expired = sign(ClientToken(id="t", key_name="app", expires_at=int(time.time()) - 1), key)
    for token, code in ((expired, "token_expired"), (expired[:-4], "invalid_token")):
        answer = await http.get("/v1/voices", headers={"X-API-Key": token})
        assert error_of(answer) == (401, code)
        assert token not in answer.text


async def test_a_key_has_so_many_sessions_at_once_and_others_are_not_touched(
    guarded: RunningServer, http: httpx.AsyncClient
) -> None:
    single = await token_from(http, OTHER, max_sessions=1)
    async with (
        connect(guarded.ws_url, additional_headers=BEARER),
        connect(f"{guarded.ws_url}?token={await token_from(http)}"),
    ):
        status, error, headers = await refused(guarded.ws_url, additional_headers=BEARER)
        assert (status, error["code"], headers["Retry-After"]) == (429, "rate_limited", "2")
        assert "key 'app' has 2 sessions open" in error["message"]
        assert (await http.get("/v1/models", headers=BEARER)).status_code == 200
        async with connect(f"{guarded.ws_url}?token={single}"):
            status, error, _ = await refused(f"{guarded.ws_url}?token={single}")
            assert (status, error["code"]) == (429, "rate_limited")
            assert "the client token" in error["message"]
            async with connect(guarded.ws_url, additional_headers={"X-API-Key": OTHER}):
                pass


async def test_a_socket_that_takes_over_is_not_one_too_many(
    run_server: Callable[..., RunningServer], eventually: Callable[..., Any]
) -> None:
    """A dead socket still counts, until it is noticed: it must not keep its own session out."""
    server = run_server(api_keys=(f"app:{KEY}",), max_sessions_per_key=1)
    async with connect(server.ws_url, additional_headers=BEARER) as dead:
        started = await RawClient(dead).start()
        session_id, token = started["session_id"], started["resume_token"]
        status, error, _ = await refused(server.ws_url, additional_headers=BEARER)
        assert (status, error["code"]) == (429, "rate_limited")
        url = f"{server.ws_url}?resumes={session_id}"
        async with connect(url, additional_headers=BEARER) as websocket:
            status, _, _ = await refused(url, additional_headers=BEARER)
            assert status == 429  # twice as many is the end
            client = RawClient(websocket)
            resume = {"token": token, "received": [], "after_event": started["n"]}
            await client.send("session.start", session_id=session_id, resume=resume)
            resumed = await client.receive()
            assert isinstance(resumed, dict)
            assert (resumed["type"], resumed["resumed"]) == ("session.started", True)
            await dead.wait_closed()
            assert dead.close_code == CLOSE_REPLACED
            await client.send("ping", t=1)
            await client.until("pong")
            status, error, _ = await refused(server.ws_url, additional_headers=BEARER)
            assert "has 1 sessions open" in error["message"]


@pytest.mark.parametrize("limits", [{"max_sessions_per_key": 1}, {"max_sessions": 1}])
@pytest.mark.parametrize("query", ["", "&voice=heart"])
async def test_one_that_said_so_and_does_not_is_closed_with_4429(
    run_server: Callable[..., RunningServer], limits: dict[str, int], query: str
) -> None:
    server = run_server(api_keys=(f"app:{KEY}",), **limits)
    async with connect(server.ws_url, additional_headers=BEARER) as websocket:
        first = RawClient(websocket)
        await first.start()
        url = f"{server.ws_url}?resumes=sess_x{query}"
        async with connect(url, additional_headers=BEARER) as other:
            second = RawClient(other)
            if not query:
                resume = {"token": "no", "received": [], "after_event": 0}
                await second.send("session.start", session_id="sess_x", resume=resume)
                gone = await second.receive()
                assert isinstance(gone, dict)
                assert gone["code"] == "session_not_found"
                second.sent = 0
                await second.send("session.start", event_id="e")
            error = await second.receive()
            assert isinstance(error, dict)
            assert (error["code"], error["scope"]) == ("rate_limited", "connection")
            assert error["retry_after_ms"] == 2000
            with pytest.raises(ConnectionClosed) as caught:
                await second.receive()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == CLOSE_CONCURRENCY
        await first.send("ping", t=1)
        await first.until("pong")


async def test_a_key_has_so_many_requests_at_once(
    run_server: Callable[..., RunningServer], eventually: Callable[..., Any]
) -> None:
    server = run_server(
        FakeScript(hang_after_frames=1), api_keys=(f"app:{KEY}", OTHER), max_requests_per_key=1
    )
    async with httpx.AsyncClient(base_url=server.base_url, headers=BEARER) as http:
        body = {"input": "A sentence that takes a while to say.", "response_format": "pcm"}
        async with http.stream("POST", "/v1/audio/speech", json=body) as running:
            assert running.status_code == 200
            answer = await http.get("/v1/voices")
            assert error_of(answer) == (429, "rate_limited")
            assert answer.headers["Retry-After"] == "2"
            other = await http.get("/v1/voices", headers={"Authorization": f"Bearer {OTHER}"})
            assert other.status_code == 200
        assert server.engine is not None
        server.engine.release()
        url = f"{server.base_url}/v1/voices"
        await eventually(lambda: httpx.get(url, headers=BEARER).status_code == 200)


@pytest.mark.slow
async def test_sockets_that_were_cut_do_not_count(
    run_server: Callable[..., RunningServer], eventually: Callable[..., Any]
) -> None:
    server = run_server(api_keys=(f"app:{KEY}",), max_sessions_per_key=8)
    for _ in range(25):
        sockets: list[ClientConnection] = [
            await connect(server.ws_url, additional_headers=BEARER) for _ in range(8)
        ]
        status, _, _ = await refused(server.ws_url, additional_headers=BEARER)
        assert status == 429
        for websocket in sockets:
            websocket.transport.abort()
        await eventually(lambda: not server.services.sessions)
    http = httpx.AsyncClient(base_url=server.base_url, headers=BEARER)
    async with http, connect(server.ws_url, additional_headers=BEARER):
        assert "moss_sessions 1.0" in (await http.get("/metrics")).text


async def test_a_page_of_a_listed_origin_reads_our_headers_and_refusals(
    http: httpx.AsyncClient,
) -> None:
    origin = {"Origin": ORIGIN}
    spoken = await http.post("/v1/audio/speech", json={"input": "Hi."}, headers=BEARER | origin)
    exposed = spoken.headers["Access-Control-Expose-Headers"].split(", ")
    ours = [name for name in spoken.headers if name.startswith("x-") and "accel" not in name]
    assert len(ours) > 5
    assert set(ours) <= {name.lower() for name in exposed}
    assert "Retry-After" in exposed
    denied = await http.get("/v1/voices", headers=origin)
    assert denied.status_code == 401
    assert denied.headers["Access-Control-Allow-Origin"] == ORIGIN
    preflight = await http.options(
        "/v1/voices",
        headers=origin
        | {
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "authorization",
        },
    )
    assert preflight.status_code == 200
    assert "authorization" in preflight.headers["Access-Control-Allow-Headers"].lower()


async def test_a_server_without_keys_asks_nobody(running_server: RunningServer) -> None:
    for headers in ({}, BEARER):
        async with httpx.AsyncClient(base_url=running_server.base_url, headers=headers) as http:
            assert (await http.get("/v1/voices")).status_code == 200
        async with connect(running_server.ws_url, additional_headers=headers) as websocket:
            assert "expires_at" not in await RawClient(websocket).start()
