"""What a whole conversation leaves in the log of a real server process: no text, no credential."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from realtime.sdk import Client
from tests.realtime.server.raw_client import RawClient
from tests.realtime.server.recordings import packed, tone

KEY = "sk-0123456789abcdef"
BEARER = {"Authorization": f"Bearer {KEY}"}
MUTE = logging.getLogger("tests.mute")  # for what the test itself sends past the SDK
MUTE.disabled = True
SECRETS = ("Persimmon", "Quince", "Medlar", "Rowanberry", "Damson", "Cloudberry")


async def converse(url: str) -> list[str]:
    """Say secrets in every way there is; returns the credentials that were used."""
    socket_url = url.replace("http", "ws", 1) + "/v1/speech"
    async with httpx.AsyncClient(base_url=url, headers=BEARER) as http:
        token = (await http.post("/v1/client_tokens", json={})).json()["token"]
        body = {"input": "Persimmon.", "response_format": "wav"}
        assert (await http.post("/v1/audio/speech", json=body)).status_code == 200
        wrong = await http.post("/v1/audio/speech", json={"input": "Persimmon.", "x": "Quince"})
        assert wrong.status_code == 400
        form = {"name": "mia", "ref_text": "Quince."}
        made = await http.post("/v1/voices", data=form, files={"audio": ("a", packed(tone(2)))})
        assert made.status_code == 200, made.text
    async with Client(url, api_key=KEY, voice="mia") as session:
        await session.add_user("Medlar?")
        assert [sound async for sound in session.say("Rowanberry.")]
    async with connect(f"{socket_url}?token={token}", logger=MUTE) as websocket:
        client = RawClient(websocket)
        await client.start()
        await client.say("r1", "Damson, and more of it, to be cut short.")
        await client.send("interrupt", played={"response_id": "r1", "ms": 0, "text": "Damson"})
        await client.send("nonsense", text="Cloudberry")
        await client.until("error")
    for credential in (KEY, "sk-another-key-of-nobody"):
        with pytest.raises(InvalidStatus):
            await connect(f"{socket_url}?token={credential}", logger=MUTE)
    return [KEY, token, "sk-another-key-of-nobody"]


def log_of(tmp_path: Path, *flags: str) -> tuple[str, list[str]]:
    arguments = ("serve", "--fake", "--port", "0", "--data-dir", str(tmp_path), *flags)
    with subprocess.Popen(
        [sys.executable, "-m", "realtime.server.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"MOSS_API_KEYS": f"app:{KEY}"},
    ) as server:
        assert server.stdout is not None
        head = []
        while not (found := re.search(r"page is at (http://[\d.:]+)", head[-1] if head else "")):
            head.append(server.stdout.readline())
            assert head[-1], "".join(head)
        try:
            credentials = asyncio.run(converse(found[1]))
        finally:
            server.send_signal(signal.SIGINT)
            rest, _ = server.communicate(timeout=60)
    return "".join(head) + rest, credentials


@pytest.mark.slow
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_neither_text_nor_credentials_reach_the_log(
    tmp_path: Path, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):  # the SDK's side, in this process
        log, credentials = log_of(tmp_path, "--log-level", level)
    for secret in (*SECRETS, *credentials):
        assert secret not in log
        assert secret not in caplog.text
    assert ("status=open" in log) is (level in ("debug", "info"))
    assert ("received=response.text" in log) is (level == "debug")


@pytest.mark.slow
def test_text_is_logged_on_request_and_credentials_never(tmp_path: Path) -> None:
    log, credentials = log_of(tmp_path, "--log-level", "debug", "--log-text")
    for said in ("Medlar?", "Rowanberry.", "Damson, and more"):
        assert said in log
    assert not any(credential in log for credential in credentials)
