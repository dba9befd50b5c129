"""What holds for every endpoint: readiness, metrics, the page, and who may ask."""

import re
import time

import httpx
import pytest

from engine.fake import FakeScript
from tests.realtime.server.raw_client import raw_client

pytestmark = pytest.mark.anyio


async def test_health_readiness_and_metrics(running_server):
    async with httpx.AsyncClient(base_url=running_server.base_url) as http:
        assert (await http.get("/healthz")).text == "ok\n"
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
        async with raw_client(running_server.ws_url) as client:
            await client.start()
            await client.say("r1", "Hello.")
            done = (await client.until("response.done"))[-1]
            text = (await http.get("/metrics")).text
        assert "moss_sessions 1.0" in text
        assert 'moss_responses_total{status="completed"} 1.0' in text
        audio_s = re.search(r"^moss_audio_seconds_total (.*)", text, re.MULTILINE)
        assert float(audio_s[1]) == pytest.approx(done["audio_ms"] / 1000)
        assert "moss_ttfa_seconds_count 1.0" in text
        assert "moss_engine_up 1.0" in text

        running_server.services.draining = True
        draining = await http.get("/readyz")
        assert (draining.status_code, draining.json()) == (503, {"status": "draining"})


async def test_the_event_loops_lag_is_observed(run_server, eventually):
    server = run_server()

    def observed(bound: str) -> float:
        samples = server.services.metrics.loop_lag_s.collect()[0].samples
        return next(s.value for s in samples if s.labels.get("le") == bound)

    await eventually(lambda: observed("+Inf") > 0)
    on_time = observed("0.1")
    server.services.bridge._loop.call_soon_threadsafe(time.sleep, 0.3)
    await eventually(lambda: observed("+Inf") > observed("0.2"))
    assert observed("0.1") >= on_time


async def test_a_hung_engine_is_not_ready_though_the_server_lives(run_server, eventually):
    server = run_server(FakeScript(hang_after_frames=1), stuck_after_s=0.3)
    http = httpx.AsyncClient(base_url=server.base_url)
    async with http, raw_client(server.ws_url) as client:
        await client.start()
        await client.say("r1", "Hello.")
        await eventually(lambda: server.services.why_not_ready() == "stuck")
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200
        server.engine.release()
        await eventually(lambda: server.services.why_not_ready() is None)


async def test_the_page_may_load_only_what_lies_beside_it(running_server):
    async with httpx.AsyncClient(base_url=running_server.base_url) as http:
        page = await http.get("/")
        assert page.status_code == 200
        assert page.headers["Content-Type"].startswith("text/html")
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert "unsafe-inline" not in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert (await http.get("/%2e%2e/pyproject.toml")).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Origin": "http://evil.example", "Host": "evil.example"},
    ],
)
async def test_a_foreign_page_or_name_is_refused_whatever_it_asks(running_server, headers):
    async with httpx.AsyncClient(base_url=running_server.base_url) as http:
        for path in ("/healthz", "/", "/v1/models", "/v1/speech"):
            answer = await http.get(path, headers=headers)
            assert answer.status_code == 403
            error = answer.json()["error"]
            assert error["code"] == "forbidden"
            assert "evil.example" in error["message"] or "null" in error["message"]


async def test_a_listed_origin_may_ask_and_is_told_so(run_server):
    server = run_server(cors_origins=("https://good.example",))
    async with httpx.AsyncClient(base_url=server.base_url) as http:
        answer = await http.get("/v1/models", headers={"Origin": "https://good.example"})
        assert answer.headers["Access-Control-Allow-Origin"] == "https://good.example"
        same = await http.get("/healthz", headers={"Origin": server.base_url})
        assert same.status_code == 200
