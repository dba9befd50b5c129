"""A client that knows nothing but the wire, so that it also catches what the SDK would hide."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from realtime.protocol.frames import AudioFrame, Flags

Got = dict[str, Any] | AudioFrame


class RawClient:
    """Sends maps, numbered; returns maps and audio frames."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket
        self.packed = websocket.subprotocol == "moss.v1.msgpack"
        self.sent = 0

    async def send(self, kind: str, **fields: Any) -> None:
        self.sent += 1
        message = {"type": kind, "m": self.sent} | fields
        await self.websocket.send(msgpack.packb(message) if self.packed else json.dumps(message))

    async def receive(self) -> Got:
        data = await self.websocket.recv()
        if isinstance(data, str):
            return json.loads(data)
        return AudioFrame.parse(data) if data[0] < 0x20 else msgpack.unpackb(data)

    async def until(self, kind: str) -> list[Got]:
        """Everything up to the first message of that type, inclusive."""
        got = [await self.receive()]
        while isinstance(got[-1], AudioFrame) or got[-1]["type"] != kind:
            got.append(await self.receive())
        return got

    async def start(self, codec: str = "pcm_s16le", **fields: Any) -> dict[str, Any]:
        audio = {"codec": codec} | fields.pop("audio", {})
        await self.send("session.start", audio=audio, **fields)
        started = await self.receive()
        assert started["type"] == "session.started", started
        return started

    async def say(self, response_id: str, text: str, **fields: Any) -> None:
        await self.send("response.start", response_id=response_id, text=text, end=True, **fields)


@asynccontextmanager
async def raw_client(
    url: str, subprotocol: str | None = None, headers: dict[str, str] | None = None
) -> AsyncIterator[RawClient]:
    offered = [subprotocol] if subprotocol else None
    options = {"subprotocols": offered, "additional_headers": headers, "compression": None}
    async with connect(url, **options) as websocket:
        yield RawClient(websocket)


def frames_of(got: list[Got]) -> list[AudioFrame]:
    return [item for item in got if isinstance(item, AudioFrame)]


def types_of(got: list[Got]) -> list[str]:
    return ["audio" if isinstance(item, AudioFrame) else item["type"] for item in got]


def pcm_of(got: list[Got]) -> np.ndarray:
    """The s16 samples of the frames, whose numbers and times are checked on the way."""
    frames = frames_of(got)
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    pts = 0
    for frame in frames:
        assert frame.pts == pts
        assert (Flags.FIRST in frame.flags) == (frame.seq == 0)
        pts += frame.samples
    return np.frombuffer(b"".join(frame.payload for frame in frames), "<i2")
