"""Idle and speaking sessions together: memory, event-loop lag, latency, bytes on the wire.

`python -m tests.bench.sessions [--idle 500] [--speaking 16] [--turns 20] [--shipped-voice]` prints
JSON. The server and its fake engine (or the shipped voice) run in processes of their own. The lag
of the server's event loop is its own metric, as the bound of the bucket that holds the percentile;
the client's is there to show how much of the latencies is the client.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import re
import time
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection

from realtime.protocol.frames import HEADER_BYTES
from tests.bench.measure import percentiles, report
from tests.realtime.server.raw_client import AudioFrame, Got, RawClient, raw_client
from tests.server_process import children, resident_kib, server_process

TEXT = "The quick brown fox jumps over the lazy dog, and then it does so once more."
SETTLE_S = 2.0
PING_EVERY_S = 0.05
TICK_S = 0.01


class Counting(RawClient):
    """Counts what it receives, WebSocket headers included."""

    def __init__(self, websocket: ClientConnection) -> None:
        super().__init__(websocket)
        self.wire_bytes = 0

    async def receive(self) -> Got:
        got = await super().receive()
        if isinstance(got, AudioFrame):
            payload = HEADER_BYTES + len(got.payload)
            self.wire_bytes += payload + (2 if payload < 126 else 4)
        return got


async def idle_sessions(stack: contextlib.AsyncExitStack, url: str, count: int) -> list[RawClient]:
    """Open sessions that then say nothing."""
    clients = []
    for _ in range(count):
        client = await stack.enter_async_context(raw_client(url, "moss.v1.msgpack"))
        await client.start()
        clients.append(client)
    return clients


async def ping(client: RawClient, round_trips_ms: list[float], done: asyncio.Event) -> None:
    """Measure how long a message takes there and back while others speak."""
    while not done.is_set():
        started = time.perf_counter()
        await client.send("ping", t=0)
        await client.until("pong")
        round_trips_ms.append(1000 * (time.perf_counter() - started))
        await asyncio.sleep(PING_EVERY_S)


def server_lag_ms(url: str) -> list[tuple[float, float]]:
    """Return the server's histogram: how many observations were at most so many milliseconds."""
    text = httpx.get(f"{url}/metrics").text
    found = re.findall(r'moss_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)', text)
    return [(1000 * float(bound), float(count)) for bound, count in found]


def bucket_percentiles(
    before: list[tuple[float, float]], after: list[tuple[float, float]]
) -> dict[str, float]:
    """Bounds of the buckets that hold the percentiles of what came between two readings."""
    counts = [(bound, count - old) for (bound, count), (_, old) in zip(after, before, strict=True)]
    total = counts[-1][1]
    return {
        f"p{rank}_at_most": next(bound for bound, count in counts if count >= total * rank / 100)
        for rank in (50, 90, 99)
    } | {"n": total}


async def own_lag(lags_ms: list[float], done: asyncio.Event) -> None:
    """Measure how late this process's own loop is: what the figures above contain of it."""
    while not done.is_set():
        due = time.perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        lags_ms.append(1000 * (time.perf_counter() - due))


async def speak(url: str, codec: str, turns: int, figures: dict[str, list[float]]) -> None:
    """Have turns; every second one is interrupted after some frames."""
    async with raw_client(url, "moss.v1.msgpack") as plain:
        client = Counting(plain.websocket)
        await client.start(codec)
        for turn in range(turns):
            started = time.perf_counter()
            before_bytes = client.wire_bytes
            await client.say(f"r{turn}", TEXT)
            while not isinstance(await client.receive(), AudioFrame):
                pass
            figures["first_audio_ms"].append(1000 * (time.perf_counter() - started))
            if turn % 2:
                started = time.perf_counter()
                await client.send("interrupt")
                await client.until("response.done")
                figures["cancel_ms"].append(1000 * (time.perf_counter() - started))
            else:
                done = (await client.until("response.done"))[-1]
                assert isinstance(done, dict)
                sound_s = done["audio_ms"] / 1000
                figures[f"{codec}_bytes_per_s"].append((client.wire_bytes - before_bytes) / sound_s)


async def measure(http_url: str, pid: int, idle: int, speaking: int, turns: int) -> dict[str, Any]:
    """Open the idle sessions, weigh them, and let the others speak beside them."""
    url = http_url.replace("http", "ws", 1) + "/v1/speech"
    [engine] = children(pid)
    names = ("first_audio_ms", "cancel_ms", "opus_bytes_per_s", "pcm_s16le_bytes_per_s")
    figures: dict[str, list[float]] = {name: [] for name in names}
    round_trips_ms: list[float] = []
    lags_ms: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        await idle_sessions(stack, url, 1)
        await asyncio.sleep(SETTLE_S)
        before = resident_kib(pid), resident_kib(engine)
        clients = await idle_sessions(stack, url, idle)
        await asyncio.sleep(SETTLE_S)
        after = resident_kib(pid), resident_kib(engine)
        lag_before = await asyncio.to_thread(server_lag_ms, http_url)
        done = asyncio.Event()
        async with asyncio.TaskGroup() as probes:
            probes.create_task(ping(clients[0], round_trips_ms, done), name="ping")
            probes.create_task(own_lag(lags_ms, done), name="lag")
            codecs = itertools.cycle(("opus", "pcm_s16le"))
            talks = (speak(url, next(codecs), turns, figures) for _ in range(speaking))
            await asyncio.gather(*talks)
            done.set()
        lag_after = await asyncio.to_thread(server_lag_ms, http_url)
    per_session = [round((b - a) / idle, 1) for a, b in zip(before, after, strict=True)]
    return {
        "idle_sessions": idle,
        "speaking_sessions": speaking,
        "server_kib_per_idle_session": per_session[0],
        "engine_kib_per_idle_session": per_session[1],
        "server_rss_mib": round(after[0] / 1024),
        "message_round_trip_ms": percentiles(round_trips_ms),
        "server_loop_lag_ms": bucket_percentiles(lag_before, lag_after),
        "client_loop_lag_ms": percentiles(lags_ms),
        **{name: percentiles(values) for name, values in figures.items()},
    }


def main() -> None:
    """Start a server, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=int, default=500)
    parser.add_argument("--speaking", type=int, default=16)
    parser.add_argument("--turns", type=int, default=20, help="of each speaking session")
    parser.add_argument("--shipped-voice", action="store_true", help="instead of the fake engine")
    asked = parser.parse_args()
    flags = ["--max-sessions", str(asked.idle + asked.speaking + 1), "--log-level", "warning"]
    flags += ["--max-rows", str(max(16, asked.speaking))]
    flags += [] if asked.shipped_voice else ["--fake"]
    with server_process(*flags) as (url, pid):
        figures = asyncio.run(measure(url, pid, asked.idle, asked.speaking, asked.turns))
    engine = "shipped voice" if asked.shipped_voice else "fake"
    report("sessions", {"engine": engine} | figures)


if __name__ == "__main__":
    main()
