"""References within requests: what is fetched for whom, and that a recording is encoded once."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from engine.api import Encode, Open
from engine.fake import FakeScript
from realtime.server import public_fetch
from realtime.server.public_fetch import FetchError, fetch, is_public
from tests.realtime.server.recordings import packed, tone

if TYPE_CHECKING:
    from tests.running_server import RunningServer

pytestmark = pytest.mark.anyio

SPEECH = "/v1/audio/speech"


class Files(BaseHTTPRequestHandler):
    """Serves what its server holds by path: (status, headers, body)."""

    def do_GET(self) -> None:
        self.server.hosts.append(self.headers["Host"])  # type: ignore[attr-defined]
        status, headers, body = self.server.files[self.path]  # type: ignore[attr-defined]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def files() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        server.files = {"/a": (200, {}, b"sound")}  # type: ignore[attr-defined]
        server.hosts = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("address", "public"),
    [
        *((address, True) for address in ("8.8.8.8", "2606:4700::1111", "64:ff9b::8.8.8.8")),
        *((address, False) for address in ("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1")),
        *((address, False) for address in ("169.254.169.254", "100.64.0.1", "0.0.0.0", "::")),
        *((address, False) for address in ("224.0.0.1", "255.255.255.255", "240.0.0.1", "::1")),
        *((address, False) for address in ("fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1")),
        *((address, False) for address in ("::ffff:10.0.0.1", "64:ff9b::127.0.0.1")),
        *((address, False) for address in ("2002:7f00:1::", "2001:0:1::1", "::127.0.0.1")),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0"]
)
async def test_no_spelling_of_this_machine_is_fetched_from(files: Any, host: str) -> None:
    with pytest.raises(FetchError) as caught:
        await fetch(f"http://{host}:{files.server_port}/a", max_bytes=100)
    assert caught.value.forbidden or "cannot be fetched" in str(caught.value)
    assert files.hosts == []


async def test_the_connection_goes_to_the_address_that_was_checked(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is public when it is checked and private when it is used: DNS rebinding."""
    answers = iter(["127.0.0.1", "10.0.0.1"])
    real = socket.getaddrinfo
    asked = []

    def resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(host)
        return real(next(answers) if host == "rebind.example" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(public_fetch, "is_public", lambda address: True)
    url = f"http://rebind.example:{files.server_port}/a"
    assert await fetch(url, max_bytes=100) == b"sound"
    assert asked.count("rebind.example") == 1
    assert files.hosts == [f"rebind.example:{files.server_port}"]


async def test_one_private_address_among_public_ones_is_enough_to_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        return [(2, 1, 6, "", (address, 0)) for address in ("8.8.8.8", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(FetchError) as caught:
        await fetch("http://mixed.example/a", max_bytes=100)
    assert caught.value.forbidden


async def test_redirects_sizes_and_compression_are_no_way_round(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    bomb = zlib.compress(bytes(50 << 20))
    files.files |= {
        "/redirect": (302, {"Location": "/a"}, b""),
        "/large": (200, {}, bytes(2_000_000)),
        "/bomb": (200, {"Content-Encoding": "deflate"}, bomb),
    }
    base, own = f"http://127.0.0.1:{files.server_port}", ("127.0.0.1",)
    assert await fetch(f"{base}/a", max_bytes=5, private_hosts=own) == b"sound"
    assert await fetch(f"{base}/bomb", max_bytes=1 << 20, private_hosts=own) == bomb
    for path, complaint in (("redirect", "status 302"), ("large", "larger than 1 MiB")):
        with pytest.raises(FetchError, match=complaint) as caught:
            await fetch(f"{base}/{path}", max_bytes=1 << 20, private_hosts=own)
        assert not caught.value.forbidden


def inline(audio: bytes) -> dict[str, str]:
    url = "data:audio/wav;base64," + base64.b64encode(audio).decode()
    return {"input": "Hi.", "ref_audio": url}


async def test_a_private_address_in_a_request_is_forbidden(
    run_server: Callable[..., RunningServer], files: Any
) -> None:
    server = run_server(allow_remote_ref_audio=True)
    body = {"input": "Hi.", "ref_audio": f"http://127.0.0.1:{files.server_port}/a"}
    async with httpx.AsyncClient(base_url=server.base_url) as http:
        answer = await http.post(SPEECH, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (
        *(400, "ref_audio_forbidden", "ref_audio"),
    )
    assert files.hosts == []


async def test_a_recording_is_encoded_once_however_often_it_is_sent(
    running_server: RunningServer,
) -> None:
    engine = running_server.engine
    assert engine is not None
    first, second = packed(tone(2)), packed(tone(2, hz=300))
    async with httpx.AsyncClient(base_url=running_server.base_url, timeout=60) as http:
        # Together, then once more, in another spelling of the same bytes.
        answers = await asyncio.gather(*(http.post(SPEECH, json=inline(first)) for _ in range(4)))
        again = inline(first)
        again["ref_audio"] = again["ref_audio"].replace("audio/wav", "audio/x-wav")
        answers.append(await http.post(SPEECH, json=again))
        assert [answer.status_code for answer in answers] == [200] * 5
        encoded = [command for _, command in engine.log if isinstance(command, Encode)]
        assert sum(command.end for command in encoded) == 1
        await http.post(SPEECH, json=inline(second))
        encoded = [command for _, command in engine.log if isinstance(command, Encode)]
        assert sum(command.end for command in encoded) == 2
    grids = [command.grid for _, command in engine.log if isinstance(command, Open)]
    assert len(grids) == 6
    for grid in grids[1:5]:
        np.testing.assert_array_equal(grid, grids[0])
    assert not np.array_equal(grids[5], grids[0])


async def test_the_same_sound_in_another_file_is_not_encoded_again(
    running_server: RunningServer,
) -> None:
    engine = running_server.engine
    assert engine is not None
    pcm = np.round(tone(2, hz=520) * 2**14) / 2**14  # both containers hold it exactly
    before = len(engine.log)
    async with httpx.AsyncClient(base_url=running_server.base_url, timeout=60) as http:
        for container in ("WAV", "FLAC"):
            answer = await http.post(SPEECH, json=inline(packed(pcm, format=container)))
            assert answer.status_code == 200
    encoded = [command for _, command in engine.log[before:] if isinstance(command, Encode)]
    assert sum(command.end for command in encoded) == 1


async def test_a_bad_recording_is_not_remembered(run_server: Callable[..., RunningServer]) -> None:
    server = run_server(FakeScript())
    async with httpx.AsyncClient(base_url=server.base_url) as http:
        for _ in range(2):
            answer = await http.post(SPEECH, json=inline(b"no sound"))
            assert answer.json()["error"]["code"] == "bad_audio"
