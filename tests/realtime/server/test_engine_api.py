"""What an operator sees of the engine: the snapshot, a trace, the metrics, a line a response."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from engine.fake import FakeScript
from realtime.sdk import Client

if TYPE_CHECKING:
    from tests.running_server import RunningServer

RunServer = Callable[..., "RunningServer"]
Eventually = Callable[[Callable[[], Any]], Awaitable[None]]
SECRET = "Zebra xylophone."


def get(server: RunningServer, path: str) -> httpx.Response:
    return httpx.get(server.base_url + path)


def metric(server: RunningServer, name: str) -> float:
    """The value of one sample, by its name with its labels."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", get(server, "/metrics").text, re.MULTILINE)
    assert found, name
    return float(found.group(1))


@pytest.mark.anyio
async def test_a_response_can_be_followed_while_it_runs_and_when_it_is_over(
    run_server: RunServer, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    server = run_server(FakeScript(block_after_frames=4), log_level="info")
    rows = server.services.bridge.rows
    with caplog.at_level(logging.INFO, logger="realtime.server.row_log"):
        async with Client(server.base_url) as session:
            reply = session.say(SECRET)
            await eventually(lambda: any(record.samples for record in rows.running.values()))
            await eventually(lambda: server.services.bridge.stats)
            snapshot = get(server, "/v1/engine").json()
            server.engine.release()
            await reply.wait()
            await eventually(lambda: rows.over)
    assert snapshot["status"] == "ready"
    assert snapshot["models"] == ["moss-tts-realtime"]
    assert snapshot["stats"]["codec_slots_total"] == 16
    assert snapshot["over"] == []
    [running] = snapshot["running"]
    name = f"sess={session.started.session_id} resp={reply.response_id}"
    assert (running["name"], running["lane"], running["state"]) == (name, "live", "speaking")
    assert running["audio_ms"] in (80, 160, 240, 320)

    later = get(server, "/v1/engine").json()
    assert later["running"] == []
    [over] = later["over"]
    assert (over["name"], over["reason"]) == (name, "completed")
    traced = get(server, over["trace"])
    assert f"row-{over['row']}.json" in traced.headers["content-disposition"]
    events = traced.json()["traceEvents"]
    assert all({"ph", "pid", "tid", "name"} <= event.keys() for event in events)
    assert all("ts" in event for event in events if event["ph"] != "M")
    assert "speaking" in {event["name"] for event in events}

    [line] = [r.getMessage() for r in caplog.records if r.name == "realtime.server.row_log"]
    assert line.startswith(f"{name} row={over['row']} lane=live ")
    told = (line, json.dumps(snapshot), json.dumps(later), traced.text)
    assert all("ebra" not in text and "xylophone" not in text for text in told)


def test_an_unknown_row_is_named(running_server: RunningServer) -> None:
    for row in ("99", "x", "\u0662"):
        answer = get(running_server, f"/v1/engine/rows/{row}/trace")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "not_found")
        assert f"no row {row!r}" in error["message"]


@pytest.mark.anyio
async def test_metrics_count_rows_and_what_they_cost(
    running_server: RunningServer, eventually: Eventually
) -> None:
    body = {"input": "Hello there.", "response_format": "pcm"}
    async with httpx.AsyncClient(base_url=running_server.base_url) as http:
        for fields in (body, body | {"max_new_tokens": 2}):
            assert (await http.post("/v1/audio/speech", json=fields)).status_code == 200
    rows = running_server.services.bridge.rows
    await eventually(lambda: len(rows.over) == 2)
    assert {record.name.split("=")[0] for record in rows.over.values()} == {"req"}
    context = sum(record.context_rows for record in rows.over.values())
    for name, value in {
        'moss_rows_total{lane="throughput",reason="completed"}': 1,
        'moss_rows_total{lane="throughput",reason="max_audio"}': 1,
        'moss_grid_rows_total{source="computed"}': context,
        'moss_grid_rows_total{source="reused"}': 0,
        'moss_queue_seconds_count{lane="throughput"}': 2,
        "moss_lead_seconds_count": 0,
    }.items():
        assert metric(running_server, name) == value, name
    async with Client(running_server.base_url) as session:
        await session.say("Hello there.").wait()
    await eventually(lambda: len(rows.over) == 3)
    assert metric(running_server, 'moss_rows_total{lane="live",reason="completed"}') == 1
    frames = rows.over[max(rows.over)].counts.frames
    assert metric(running_server, "moss_lead_seconds_count") == frames - 1
    await eventually(lambda: metric(running_server, "moss_batch_rows_count") > 0)


@pytest.mark.parametrize("path", ["/v1/engine", "/v1/engine/rows/1/trace"])
def test_with_keys_set_nobody_else_looks(run_server: RunServer, path: str) -> None:
    server = run_server(api_keys=("sk-0123456789abcdef",))
    assert get(server, path).status_code == 401
