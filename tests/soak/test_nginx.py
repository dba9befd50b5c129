"""A conversation through a real nginx with the file we ship, silent for longer than proxies like.

`MOSS_SOAK_IDLE_S` says how long; ten minutes unless set.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from realtime.protocol.messages import Generation
from realtime.sdk import Client, Session
from realtime.server.speech import MAX_BODY_BYTES
from tests.server_process import server_process

pytestmark = pytest.mark.anyio

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"
IDLE_S = float(os.environ.get("MOSS_SOAK_IDLE_S", "600"))
TEXT = "After a long silence this is spoken whole, from its first sample to its last. " * 4
TOKEN = "token-that-no-log-may-hold"
# What /etc/nginx/nginx.conf would be, with all that is written below one folder.
MAIN = """\
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{}}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old), f"deploy/nginx.conf no longer has {old!r}, which the test replaces"
    return text.replace(old, new)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@contextmanager
def nginx_before(server_url: str, folder: Path) -> Iterator[str]:
    """Run nginx with our file before a server; gives its URL."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.fail("there is no nginx: install it, on Debian with `apt-get install nginx-light`")
    port = free_port()
    site = CONFIGURATION.read_text("utf-8")
    site = replaced(site, "listen 80;", f"listen 127.0.0.1:{port};")
    site = replaced(site, "server 127.0.0.1:8000;", f"server {server_url.removeprefix('http://')};")
    (folder / "site.conf").write_text(replaced(site, "/var/log/nginx", str(folder)))
    # Root's nginx would give its work to a user who may not write here.
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder, user=user))
    command = [program, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    with subprocess.Popen(command) as nginx:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            nginx.terminate()


@pytest.fixture
def urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The URL of a server, and that of the nginx before it."""
    monkeypatch.delenv("MOSS_SOAK_IDLE_S", raising=False)  # the server knows no such setting
    folder = tmp_path / "nginx"
    folder.mkdir()
    flags = ("--fake", "--data-dir", str(tmp_path / "data"), "--log-level", "warning")
    with server_process(*flags) as (direct, _), nginx_before(direct, folder) as proxied:
        yield direct, proxied


async def until_up(url: str) -> None:
    async with httpx.AsyncClient() as client:
        for _ in range(1000):
            try:
                if (await client.get(f"{url}/readyz")).status_code == 200:
                    return
            except httpx.ConnectError:
                pass
            await asyncio.sleep(0.01)
    pytest.fail(f"nothing answers at {url}")


async def heard(session: Session) -> bytes:
    reply = session.say(TEXT)
    sound = b"".join([piece async for piece in reply])
    assert reply.gaps == []
    assert reply.done
    assert reply.done.status == "completed"
    return sound


async def test_a_long_silence_behind_nginx_costs_no_sample(urls):
    direct, proxied = urls
    await until_up(proxied)
    generation = Generation(seed=7)
    async with Client(direct, generation=generation) as session:
        expected = await heard(session)
    assert len(expected) > session.rate_hz  # half a second, two bytes a sample
    async with Client(proxied, generation=generation, resume_s=0) as session:
        socket_at_first = session.link._websocket
        await asyncio.sleep(IDLE_S)
        assert await heard(session) == expected
        assert session.link._websocket is socket_at_first


async def test_speech_comes_through_nginx_as_it_is_spoken(urls):
    direct, proxied = urls
    await until_up(proxied)
    body = {"model": "tts-1", "input": TEXT, "response_format": "pcm", "seed": 7}
    async with httpx.AsyncClient(timeout=60) as client:
        expected = (await client.post(f"{direct}/v1/audio/speech", json=body)).content
        async with client.stream("POST", f"{proxied}/v1/audio/speech", json=body) as answer:
            assert answer.status_code == 200
            pieces = [piece async for piece in answer.aiter_raw()]
    assert len(pieces) > 1
    assert b"".join(pieces) == expected


async def test_the_server_judges_what_is_too_large(urls):
    _, proxied = urls
    await until_up(proxied)
    async with httpx.AsyncClient(timeout=60) as client:
        for size, status in ((MAX_BODY_BYTES, 400), (MAX_BODY_BYTES + 1, 413)):
            answer = await client.post(f"{proxied}/v1/audio/speech", content=b" " * size)
            assert answer.status_code == status
            assert answer.json()["error"]["message"]


async def test_no_log_of_nginx_has_a_client_token(urls, tmp_path):
    _, proxied = urls
    await until_up(proxied)
    async with httpx.AsyncClient() as client:
        await client.get(f"{proxied}/v1/speech?token={TOKEN}")
    log = (tmp_path / "nginx" / "moss-realtime.log").read_text()
    assert re.search(r" GET /v1/speech \d+ ", log)
    written = [p.read_text() for p in (tmp_path / "nginx").glob("*.log")]
    assert not any(TOKEN in text for text in written)
