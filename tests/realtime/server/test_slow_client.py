"""A client that never reads costs its neighbours nothing, and the server little memory."""

from __future__ import annotations

import asyncio
import hashlib

import httpx
import pytest

from tests.realtime.server.raw_client import frames_of, raw_client
from tests.server_process import resident_kib, server_process

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

READERS = 15
TURNS = 3
TEXT = "The quick brown fox jumps over the lazy dog. " * 10
LONGEST = "word " * 1600  # 8,000 characters: some 400 s of sound, 38 MiB of f32
RESPONSES = 5  # of one session at a time
GROWTH_KIB = 48 * 1024


async def hear(url: str) -> list[str]:
    """Have a few turns; return what each sounded like, and when its samples were."""
    heard = []
    async with raw_client(url, "moss.v1.msgpack") as client:
        await client.start(flow={"mode": "none"})
        for turn in range(TURNS):
            await client.say(f"r{turn}", TEXT)
            frames = frames_of(await client.until("response.done"))
            sound = hashlib.sha256()
            for frame in frames:
                sound.update(b"%d %d %d " % (frame.seq, frame.pts, frame.samples) + frame.payload)
            heard.append(sound.hexdigest())
    return heard


def gauge(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)


async def neighbours(url: str) -> list[list[str]]:
    return await asyncio.gather(*(hear(url) for _ in range(READERS)))


async def test_one_client_that_never_reads_among_sixteen(tmp_path, eventually):
    flags = ("--fake", "--max-rows", "32", "--data-dir", str(tmp_path), "--log-level", "warning")
    with server_process(*flags, "--slow-consumer-s", "600", "--resume-ttl-s", "1") as (url, pid):
        socket_url = url.replace("http", "ws") + "/v1/speech"
        alone = await neighbours(socket_url)
        before_kib = resident_kib(pid)
        async with raw_client(socket_url) as client:
            await client.start()
            client.websocket.transport.pause_reading()
            for index in range(RESPONSES):
                context = "none" if index else "conversation"
                await client.say(f"r{index}", LONGEST, context=context)
            await eventually(lambda: gauge(url, "moss_engine_rows_parked") == RESPONSES)
            beside = await neighbours(socket_url)
            # Also what it asks for without reading the answers is bounded.
            for _ in range(2000):
                await client.send("ping", t=1)
            assert gauge(url, "moss_engine_rows_parked") == RESPONSES
            assert gauge(url, "moss_sessions") == 1
            grown_kib = resident_kib(pid) - before_kib
            client.websocket.transport.abort()
        await eventually(lambda: gauge(url, "moss_engine_rows_open") == 0)
        assert gauge(url, "moss_slow_consumers_total") == 0
    assert beside == alone
    assert grown_kib < GROWTH_KIB, "without a bound it would be some 200 MiB"
