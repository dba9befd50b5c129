"""A hostile client gets documented errors, and nobody else hears a difference."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from engine.fake import FakeScript
from realtime.protocol.errors import CLOSE_NORMAL, CLOSE_PROTOCOL, CLOSE_TOO_BIG
from realtime.protocol.frames import is_audio
from tests.realtime.hostile import ATTACKS, check_error, on_the_wire
from tests.realtime.server.raw_client import frames_of, raw_client

pytestmark = pytest.mark.slow

TEXT = "The neighbour hears every word of this, whoever else is there. " * 2
INVALID_UTF8 = 1007
ALLOWED_CLOSES = {CLOSE_NORMAL, CLOSE_PROTOCOL, CLOSE_TOO_BIG, INVALID_UTF8}


class Attacker:
    """Sends anything and follows the number that the server awaits by what it answers."""

    def __init__(self, websocket: ClientConnection, encoding: str) -> None:
        self._websocket = websocket
        self._encoding = encoding
        self._awaited = 1

    async def attack(self, attack: list[Any]) -> None:
        await self._send({"type": "session.start"})
        await self._send({"type": "response.start", "response_id": "r1", "text": TEXT})
        for hostile in attack:
            await self._websocket.send(on_the_wire(hostile, self._encoding, self._awaited))
            self._awaited += 1
            await self.settle()
        await self._send(
            {"type": "response.start", "response_id": "last", "text": "x", "end": True}
        )
        await self._until("response.started")

    async def settle(self) -> None:
        """Ask for a number far ahead: the answer names the awaited one, and comes last."""
        await self._websocket.send(self._pack({"type": "ping", "m": 2**53 - 1, "t": 0}))
        self._awaited = (await self._until("error", code="sequence_gap", top=True))["expected"]

    async def _send(self, fields: dict[str, Any]) -> None:
        await self._websocket.send(self._pack(fields | {"m": self._awaited}))
        self._awaited += 1

    def _pack(self, fields: dict[str, Any]) -> str | bytes:
        return json.dumps(fields) if self._encoding == "json" else msgpack.packb(fields)

    async def _until(self, kind: str, code: str | None = None, top: bool = False) -> dict[str, Any]:
        while True:
            data = await self._websocket.recv()
            if isinstance(data, bytes) and is_audio(data):
                continue
            message = json.loads(data) if isinstance(data, str) else _unpacked(data)
            if message["type"] == "error":
                check_error(message)
            asked = not top or str(2**53 - 1) in message.get("message", "")
            if message["type"] == kind and code in (None, message.get("code")) and asked:
                return message


def _unpacked(data: bytes) -> Any:
    # A lone surrogate that the client sent comes back as it is.
    return msgpack.unpackb(data, unicode_errors="surrogatepass")


async def attacked(url: str, encoding: str, attack: list[Any]) -> None:
    subprotocol = f"moss.v1.{encoding}"
    async with connect(url, subprotocols=[subprotocol], compression=None) as websocket:
        with contextlib.suppress(ConnectionClosed):
            await Attacker(websocket, encoding).attack(attack)
    assert websocket.close_code in ALLOWED_CLOSES


async def neighbour(url: str) -> str:
    sound = hashlib.sha256()
    async with raw_client(url) as client:
        await client.start()
        await client.say("r1", TEXT)
        for frame in frames_of(await client.until("response.done")):
            sound.update(dataclasses.replace(frame, payload=b"").pack() + frame.payload)
    return sound.hexdigest()


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_neighbours_hear_what_they_hear_without_the_attacker(run_server, eventually, encoding):
    server = run_server(FakeScript(sound="ramp", chunk_ramp_frames=(1, 4, 15)), resume_ttl_s=1)
    alone = asyncio.run(neighbour(server.ws_url))

    async def both(attack: list[Any]) -> str:
        _, heard = await asyncio.gather(
            attacked(server.ws_url, encoding, attack), neighbour(server.ws_url)
        )
        return heard

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(ATTACKS)
    def attack_beside_a_neighbour(attack: list[Any]) -> None:
        assert asyncio.run(both(attack)) == alone

    attack_beside_a_neighbour()
    asyncio.run(
        eventually(lambda: not server.services.sessions and not server.services.bridge.busy)
    )


@pytest.mark.parametrize(
    ("data", "code"),
    [("x" * (1 << 21), CLOSE_TOO_BIG), (b"\x00" * (1 << 21), CLOSE_TOO_BIG)],
)
def test_what_is_too_big_closes_that_socket(running_server, data, code):
    async def send_it() -> int | None:
        async with connect(running_server.ws_url, compression=None) as websocket:
            with contextlib.suppress(ConnectionClosed):
                await websocket.send(data)
                await websocket.recv()
        return websocket.close_code

    assert asyncio.run(send_it()) == code
