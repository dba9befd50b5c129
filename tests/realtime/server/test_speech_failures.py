"""What can go wrong with a speech request, and that it harms nobody else."""

from __future__ import annotations

import base64
import http.server
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from engine.api import Cancel, Open
from engine.fake import FakeScript
from tests.realtime.server.recordings import packed, tone

if TYPE_CHECKING:
    from tests.running_server import RunningServer

RunServer = Callable[..., "RunningServer"]

pytestmark = pytest.mark.slow

SPEECH = "/v1/audio/speech"
Eventually = Callable[[Callable[[], Any]], Awaitable[None]]


def data_url(audio: bytes) -> str:
    return "data:audio/wav;base64," + base64.b64encode(audio).decode()


def commands(server: RunningServer, kind: type) -> list[Any]:
    return [command for _, command in server.engine.log if isinstance(command, kind)]


def send(server: RunningServer, body: dict[str, Any]) -> socket.socket:
    """Send a speech request and leave the answer to the caller."""
    content = json.dumps(body).encode()
    url = httpx.URL(server.base_url)
    connection = socket.create_connection((url.host, url.port))
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


# (body, status, code, param, part of the message)
BAD_BODIES: list[tuple[Any, int, str, str | None, str]] = [
    (b"", 400, "invalid_json", None, "line 1"),
    (b"{", 400, "invalid_json", None, "line 1 column 2"),
    (b"[1]", 400, "invalid_json", None, "list, not an object"),
    (b'{"input": "\xff"}', 400, "invalid_json", None, "not UTF-8 (byte 11)"),
    (b"[" * 100_000, 400, "invalid_json", None, "nested too deeply"),
    (b'{"seed": ' + b"9" * 5000 + b"}", 400, "invalid_json", None, "digits"),
    (b'{"input": "Hi", "temperature": NaN}', 400, "invalid_field", "temperature", "nan"),
    (b'{"input": "Hi", "top_p": Infinity}', 400, "invalid_field", "top_p", "inf"),
    ({}, 400, "missing_field", "input", "`input` is required"),
    ({"input": 5}, 400, "invalid_field", "input", "string, not 5"),
    ({"input": ""}, 400, "input_blank", "input", "blank"),
    ({"input": " \n\u3000"}, 400, "input_blank", "input", "blank"),
    ({"input": "x" * 8001}, 400, "string_above_max_length", "input", "8001"),
    ({"inptu": "Hi", "input": "Hi"}, 400, "unknown_field", "inptu", "did you mean `input`?"),
    ({"input": "Hi", "model": "tts-9"}, 404, "model_not_found", "model", "moss-tts-realtime"),
    ({"input": "Hi", "voice": "nobody"}, 400, "voice_not_found", "voice", "bright, male"),
    ({"input": "Hi", "voice": ""}, 400, "voice_not_found", "voice", "''"),
    ({"input": "Hi", "voice": {"name": "x"}}, 400, "invalid_field", "voice", "name or {"),
    ({"input": "Hi", "voice": 5}, 400, "invalid_field", "voice", "not 5"),
    ({"input": "Hi", "voice": "male", "speaker": "alto"}, 400, "conflict", "speaker", "send one"),
    (
        {"input": "Hi", "response_format": "aac"},
        400,
        "unsupported_format",
        "response_format",
        "mp3",
    ),
    ({"input": "Hi", "speed": 1.5}, 400, "unsupported", "speed", "1.5 is not supported"),
    ({"input": "Hi", "speed": "fast"}, 400, "invalid_field", "speed", "'fast'"),
    ({"input": "Hi", "instructions": "sing"}, 400, "unsupported", "instructions", "leave"),
    ({"input": "Hi", "stream_format": "ws"}, 400, "invalid_field", "stream_format", "'ws'"),
    ({"input": "Hi", "temperature": 2.1}, 400, "invalid_field", "temperature", "2.1"),
    ({"input": "Hi", "temperature": -1}, 400, "invalid_field", "temperature", "-1"),
    ({"input": "Hi", "top_p": 1.01}, 400, "invalid_field", "top_p", "1.01"),
    ({"input": "Hi", "top_k": -1}, 400, "invalid_field", "top_k", "-1"),
    ({"input": "Hi", "top_k": 1.5}, 400, "invalid_field", "top_k", "1.5"),
    ({"input": "Hi", "repetition_penalty": 0}, 400, "invalid_field", "repetition_penalty", "0"),
    ({"input": "Hi", "seed": -1}, 400, "invalid_field", "seed", "-1"),
    ({"input": "Hi", "seed": 2**63}, 400, "invalid_field", "seed", str(2**63)),
    ({"input": "Hi", "max_new_tokens": 0}, 400, "invalid_field", "max_new_tokens", "0"),
    (
        {"input": "Hi", "ref_audio": data_url(packed(tone(2))), "voice": "male"},
        *(400, "conflict", "ref_audio", "exclude each other"),
    ),
    *(
        ({"input": "Hi", "ref_audio": url}, 400, code, "ref_audio", message)
        for url, code, message in [
            ("http://127.0.0.1/a.wav", "ref_audio_forbidden", "inline; http: URLs"),
            ("https://example.com/a.wav", "ref_audio_forbidden", "inline; https: URLs"),
            ("file:///etc/passwd", "ref_audio_forbidden", "file: URLs are not opened"),
            ("a.wav", "invalid_field", "data:audio/wav;base64"),
            ("", "invalid_field", "data:audio/wav;base64"),
            ("data:audio/wav,abc", "invalid_field", ";base64,"),
            ("data:audio/wav;base64,?", "invalid_field", "not base64"),
            (data_url(b""), "bad_audio", "empty (0 bytes)"),
            (data_url(b"noise" * 500), "bad_audio", "cannot be decoded"),
            (data_url(packed(tone(0.5))), "bad_audio", "0.50 s"),
            (data_url(packed(tone(2, channels=8))), "bad_audio", "8 channels"),
            (data_url(packed(tone(40))), "bad_audio", "longer than 30 s"),
        ]
    ),
]


def test_bad_requests_are_told_why_and_never_reach_the_engine(
    running_server: RunningServer,
) -> None:
    with httpx.Client(base_url=running_server.base_url) as client:
        for body, status, code, param, message in BAD_BODIES:
            sent = {"content": body} if isinstance(body, bytes) else {"json": body}
            answer = client.post(SPEECH, **sent)
            error = answer.json()["error"]
            label = (str(body)[:60], error)
            assert error.keys() == {"message", "type", "param", "code"}, label
            assert (answer.status_code, error["code"], error["param"]) == (status, code, param), (
                label
            )
            assert message in error["message"], label
            assert len(error["message"]) < 400, label
            assert "x-request-id" in answer.headers
        assert commands(running_server, Open) == []
        assert client.post(SPEECH, json={"input": "Hi."}).status_code == 200


def test_wrong_paths_and_methods_have_the_same_shape(running_server: RunningServer) -> None:
    with httpx.Client(base_url=running_server.base_url) as client:
        wrong_method = client.get(SPEECH)
        assert (wrong_method.status_code, wrong_method.headers["allow"]) == (405, "POST")
        assert wrong_method.json()["error"]["code"] == "method_not_allowed"
        assert client.put("/v1/voices").headers["allow"] == "GET, POST"
        nowhere = client.post("/v1/audio/speach", json={})
        assert nowhere.status_code == 404
        assert nowhere.json()["error"] == {
            "message": "there is nothing at /v1/audio/speach",
            "type": "not_found_error",
            "param": None,
            "code": "not_found",
        }


def test_a_body_too_large_is_refused_while_it_arrives(running_server: RunningServer) -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"input": "'
        for _ in range(20):
            yield b"x" * (1 << 20)

    answer = httpx.post(running_server.base_url + SPEECH, content=endless())
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_large"


def test_inline_reference_is_encoded_and_used(running_server: RunningServer) -> None:
    body = {"input": "Hi.", "ref_audio": data_url(packed(tone(2))), "voice": "default"}
    answer = httpx.post(running_server.base_url + SPEECH, json=body)
    assert (answer.status_code, answer.headers["x-voice"]) == (200, "ref_audio")
    [opened] = commands(running_server, Open)
    prompt = running_server.services.prompt
    voice_rows = opened.grid[:, 0] == prompt.voice_pad
    assert voice_rows.sum() == 25
    assert np.ptp(opened.grid[voice_rows, 1]) <= 10  # the fake codes the level, which is steady


def test_remote_reference_where_it_is_allowed(run_server: RunServer) -> None:
    class Files(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/a.wav" else 404)
            self.end_headers()
            self.wfile.write(packed(tone(2)))

        def log_message(self, *args: Any) -> None:
            pass

    server = run_server(allow_remote_ref_audio=True, ref_audio_private_hosts=("127.0.0.1",))
    with http.server.HTTPServer(("127.0.0.1", 0), Files) as files:
        thread = threading.Thread(target=files.serve_forever)
        thread.start()
        try:
            base = f"http://127.0.0.1:{files.server_port}"
            good, absent, broken, local = (
                httpx.post(server.base_url + SPEECH, json={"input": "Hi.", "ref_audio": url})
                for url in (f"{base}/a.wav", f"{base}/b.wav", "http://127.0.0.1:1/", "file:///a")
            )
        finally:
            files.shutdown()
            thread.join()
    assert good.status_code == 200
    assert "status 404" in absent.json()["error"]["message"]
    assert "cannot be fetched" in broken.json()["error"]["message"]
    assert local.json()["error"]["code"] == "ref_audio_forbidden"


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (FakeScript(refuse="overloaded"), 429, "overloaded"),
        (FakeScript(refuse="context_too_long"), 400, "context_too_long"),
        (FakeScript(frames_per_id=0, tail_frames=0), 500, "no_audio_generated"),
        (FakeScript(fail_after_frames=0), 500, "generation_failed"),
        (FakeScript(die_after_frames=0), 503, "engine_restarted"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_an_end_before_the_first_sound_has_a_status(
    run_server: RunServer, script: FakeScript, status: int, code: str, stream_format: str
) -> None:
    server = run_server(script)
    body = {"input": "Hello there.", "stream_format": stream_format}
    answer = httpx.post(server.base_url + SPEECH, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert ("retry-after" in answer.headers) == (status in (429, 503))


def test_while_draining_new_requests_get_503(running_server: RunningServer) -> None:
    running_server.services.draining = True
    answer = httpx.post(running_server.base_url + SPEECH, json={"input": "Hi."})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
    assert int(answer.headers["retry-after"]) >= 1


def test_a_raw_answer_that_breaks_has_no_proper_end(run_server: RunServer) -> None:
    server = run_server(FakeScript(fail_after_frames=2))
    received: list[bytes] = []

    def read() -> None:
        body = {"input": "Hello there.", "response_format": "pcm"}
        with httpx.stream("POST", server.base_url + SPEECH, json=body) as answer:
            assert answer.status_code == 200
            received.extend(answer.iter_raw())

    with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
        read()
    assert len(b"".join(received)) == 2 * 3840


def test_an_event_stream_that_breaks_says_so(run_server: RunServer) -> None:
    server = run_server(FakeScript(fail_after_frames=2))
    body = {"input": "Hello there.", "response_format": "pcm", "stream_format": "sse"}
    answer = httpx.post(server.base_url + SPEECH, json=body)
    *deltas, last = answer.text.strip().split("\n\n")
    assert len(deltas) == 2
    name, data = last.split("\n")
    assert name == "event: speech.audio.error"
    error = json.loads(data.removeprefix("data: "))["error"]
    assert (error["code"], error["partial_audio"]) == ("generation_failed", True)
    assert "scripted failure" in error["message"]


@pytest.mark.anyio
@pytest.mark.parametrize("frames", [0, 3])
async def test_a_client_that_vanishes_frees_its_row(
    run_server: RunServer, eventually: Eventually, frames: int
) -> None:
    server = run_server(FakeScript(block_after_frames=frames))
    connection = send(server, {"input": "Hello there.", "response_format": "pcm"})
    await eventually(lambda: commands(server, Open))
    if frames:
        await eventually(lambda: connection.recv(1 << 16))
    connection.close()
    await eventually(lambda: commands(server, Cancel))
    [opened], [cancelled] = commands(server, Open), commands(server, Cancel)
    assert cancelled.row == opened.row
    await eventually(lambda: server.services.bridge.stats.rows_open == 0)


@pytest.mark.anyio
async def test_a_client_that_reads_nothing_parks_its_row_and_then_loses_it(
    run_server: RunServer, eventually: Eventually
) -> None:
    server = run_server(FakeScript(never_end=True), slow_consumer_s=1.0)
    bridge = server.services.bridge
    with send(server, {"input": "Hello there.", "response_format": "pcm"}):
        await eventually(lambda: bridge.stats and bridge.stats.rows_parked == 1)
        assert commands(server, Cancel) == []
        await eventually(lambda: commands(server, Cancel))
    await eventually(lambda: bridge.stats.rows_open == 0)


def test_a_failed_neighbour_changes_nothing(running_server: RunningServer) -> None:
    body = {"input": "Hello there.", "response_format": "pcm", "seed": 1}
    alone = httpx.post(running_server.base_url + SPEECH, json=body).content
    with send(running_server, body), send(running_server, {"input": "", "seed": 1}):
        together = httpx.post(running_server.base_url + SPEECH, json=body).content
    assert together == alone
