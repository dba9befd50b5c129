"""`POST /v1/audio/speech/batch` over a real server: as many answers as items, each its own."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from engine.api import Cancel, Open
from engine.fake import FakeScript

if TYPE_CHECKING:
    from tests.running_server import RunningServer

RunServer = Callable[..., "RunningServer"]
Eventually = Callable[[Callable[[], Any]], Awaitable[None]]

SPEECH = "/v1/audio/speech"
BATCH = f"{SPEECH}/batch"


def post(server: RunningServer, body: Any) -> httpx.Response:
    return httpx.post(server.base_url + BATCH, json=body, timeout=60)


def opened(server: RunningServer) -> list[Open]:
    return [command for _, command in server.engine.log if isinstance(command, Open)]


def test_each_item_sounds_as_a_request_of_its_own(running_server: RunningServer) -> None:
    items = [
        {"input": "Hello there.", "seed": 1},
        {"input": "How are you today?", "seed": 2, "response_format": "wav", "voice": "male"},
        {"input": "Well.", "max_new_tokens": 4, "voice": None},
    ]
    defaults = {"voice": "heart", "response_format": "pcm", "seed": 9}
    answer = post(running_server, {"items": items} | defaults)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    batch = answer.json()
    assert batch["id"] == answer.headers["x-request-id"]
    assert (batch["total"], batch["succeeded"], batch["failed"]) == (3, 3, 0)
    for index, (item, result) in enumerate(zip(items, batch["results"], strict=True)):
        body = defaults | {name: value for name, value in item.items() if value is not None}
        alone = httpx.post(running_server.base_url + SPEECH, json=body)
        assert base64.b64decode(result["audio_data"]) == alone.content
        assert (result["index"], result["status"], result["status_code"]) == (index, "success", 200)
        assert result["media_type"] == alone.headers["content-type"]
        assert (result["sample_rate"], result["channels"]) == (24_000, 1)
        assert (result["model"], result["voice"]) == ("moss-tts-realtime", body["voice"])
        assert result["usage"]["output_tokens"] * 80 == result["audio_duration_ms"]
    assert [result["finish_reason"] for result in batch["results"]] == ["stop", "stop", "length"]
    assert {command.lane for command in opened(running_server)} == {"throughput"}
    assert sorted(command.seed for command in opened(running_server)) == [1, 1, 2, 2, 9, 9]


BAD_ITEMS = [
    ("text", 400, "invalid_field", "must be an object, not str"),
    ({}, 400, "missing_field", "`input` is required"),
    ({"input": " "}, 400, "input_blank", "blank"),
    ({"input": "Hi", "voise": "male"}, 400, "unknown_field", "voise"),
    ({"input": "Hi", "voice": "nobody"}, 400, "voice_not_found", "nobody"),
    ({"input": "Hi", "model": "tts-9"}, 404, "model_not_found", "tts-9"),
    ({"input": "Hi", "stream_format": "sse"}, 400, "unsupported", "`stream`: true"),
    ({"input": "Hi", "ref_audio": "data:audio/wav;base64,?"}, 400, "invalid_field", "base64"),
]


@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_item_harms_no_other(running_server: RunningServer, stream: bool) -> None:
    good = {"input": "Hello there."}
    items = [good, *(item for item, *_ in BAD_ITEMS), good]
    answer = post(running_server, {"items": items, "stream": stream, "voice": "male"})
    if stream:
        *results, counts = map(json.loads, answer.text.splitlines())
        results.sort(key=lambda result: result["index"])
    else:
        counts = answer.json()
        results = counts.pop("results")
    failed = len(BAD_ITEMS)
    assert counts["id"] == answer.headers["x-request-id"]
    assert (counts["total"], counts["succeeded"], counts["failed"]) == (failed + 2, 2, failed)
    first, *bad, last = results
    assert {first["status"], last["status"]} == {"success"}
    for (item, status, code, message), result in zip(BAD_ITEMS, bad, strict=True):
        label = (item, result)
        assert (result["status"], result["status_code"]) == ("error", status), label
        assert result["error"]["code"] == code, label
        assert message in result["error"]["message"], label
        assert result.keys() == {"index", "status", "status_code", "error"}, label
    assert len(opened(running_server)) == 2


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({}, "invalid_field", "list of 1 to 32 requests, not None"),
        ({"items": []}, "invalid_field", "not 0"),
        ({"items": "text"}, "invalid_field", "not 'text'"),
        ({"items": [{"input": "Hi"}] * 33}, "invalid_field", "not 33"),
        ({"items": [{"input": "Hi"}], "voise": "male"}, "unknown_field", "did you mean `voice`?"),
        ({"items": [{"input": "Hi"}], "stream": "yes"}, "invalid_field", "true or false"),
    ],
)
def test_a_bad_batch_is_refused_as_a_whole(
    running_server: RunningServer, body: Any, code: str, message: str
) -> None:
    answer = post(running_server, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, code)
    assert message in error["message"]
    assert opened(running_server) == []


def test_an_item_that_names_a_reference_takes_no_voice_from_the_defaults(
    running_server: RunningServer,
) -> None:
    item = {"input": "Hi", "ref_audio": "file:///a"}
    [result] = post(running_server, {"items": [item], "voice": "male"}).json()["results"]
    assert result["error"]["code"] == "ref_audio_forbidden"


def test_results_come_as_they_finish(run_server: RunServer) -> None:
    server = run_server(FakeScript(block_after_frames=5))
    items = [{"input": "A long one to wait for."}, {"input": "Hi", "max_new_tokens": 3}]
    body = {"items": items, "stream": True}
    with httpx.stream("POST", server.base_url + BATCH, json=body, timeout=60) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = answer.iter_lines()
        assert json.loads(next(lines))["index"] == 1
        server.engine.release()
        assert json.loads(next(lines))["index"] == 0
        assert json.loads(next(lines))["succeeded"] == 2
        assert list(lines) == []


def test_a_batch_waits_for_the_engines_places_instead_of_filling_its_queue(
    run_server: RunServer,
) -> None:
    server = run_server(max_rows=2, max_queued_rows=0)
    answer = post(server, {"items": [{"input": "Hi."}] * 8})
    assert answer.json()["succeeded"] == 8


def test_what_the_engine_cannot_take_is_told_as_of_a_single_request(run_server: RunServer) -> None:
    server = run_server(FakeScript(refuse="overloaded"))
    [result] = post(server, {"items": [{"input": "Hi."}]}).json()["results"]
    assert (result["status_code"], result["error"]["code"]) == (429, "overloaded")
    assert result["retry_after_s"] >= 1


def test_an_item_that_breaks_half_way_is_an_error_without_sound(run_server: RunServer) -> None:
    server = run_server(FakeScript(fail_after_frames=2))
    [result] = post(server, {"items": [{"input": "Hello."}]}).json()["results"]
    assert (result["status_code"], result["error"]["code"]) == (500, "generation_failed")
    assert "audio_data" not in result


@pytest.mark.anyio
async def test_a_client_that_vanishes_frees_every_row(
    run_server: RunServer, eventually: Eventually
) -> None:
    server = run_server(FakeScript(block_after_frames=2))
    content = json.dumps({"items": [{"input": "Hello there."}] * 3}).encode()
    url = httpx.URL(server.base_url)
    with socket.create_connection((url.host, url.port)) as connection:
        head = f"POST {BATCH} HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {len(content)}\r\n"
        connection.sendall(head.encode() + b"\r\n" + content)
        await eventually(lambda: len(opened(server)) == 3)
    await eventually(
        lambda: sum(isinstance(command, Cancel) for _, command in server.engine.log) == 3
    )
    await eventually(lambda: server.services.bridge.stats.rows_open == 0)
