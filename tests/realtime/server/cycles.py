"""Sessions opened and ended in every way, and what may be left of them: nothing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from realtime.protocol.frames import AudioFrame, Flags
from realtime.server.credentials import Credentials
from tests.realtime.server.raw_client import RawClient, raw_client
from tests.running_server import RunningServer

AT_ONCE = 8
TEXT = "A sentence that is long enough to be cut off while it is being spoken."


async def nothing_sent(client: RawClient) -> None:
    """Connect and go."""


async def only_started(client: RawClient) -> None:
    await client.start()


async def closed_by_message(client: RawClient) -> None:
    await client.start()
    await client.say("r", TEXT)
    await client.send("session.close")
    await client.until("session.closed")


async def heard_to_the_end(client: RawClient) -> None:
    await client.start("opus")
    await client.say("r", "Hi.")
    await client.until("response.done")


async def gone_before_any_sound(client: RawClient) -> None:
    await client.start()
    await client.send("response.start", response_id="r")
    await client.until("response.started")


async def gone_while_speaking(client: RawClient) -> None:
    await client.start()
    await client.say("r", TEXT)
    await client.say("beside", TEXT, context="none")
    await client.say("queued", TEXT)
    while not isinstance(await client.receive(), AudioFrame):
        pass


async def interrupted(client: RawClient) -> None:
    await client.start()
    await client.say("r", TEXT)
    await client.send("interrupt")
    await client.until("response.done")


async def gone_while_listening(client: RawClient) -> None:
    await client.start(input_audio={"codec": "pcm_s16le", "sample_rate": 24_000})
    for seq in range(3):
        frame = AudioFrame(0x11, Flags.NONE, 0, seq, seq * 1920, 1920, 0, bytes(3840))
        await client.websocket.send(frame.pack())
    await client.send("ping", t=0)
    await client.until("pong")


WAYS: tuple[Callable[[RawClient], Awaitable[None]], ...] = (
    nothing_sent,
    only_started,
    closed_by_message,
    heard_to_the_end,
    gone_before_any_sound,
    gone_while_speaking,
    interrupted,
    gone_while_listening,
)


async def open_and_end(url: str, count: int) -> None:
    """Go through `count` sessions, a few at once, half of them torn off without a word."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            async with raw_client(url) as client:
                await WAYS[number % len(WAYS)](client)
                if number // len(WAYS) % 2:
                    client.websocket.transport.abort()

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


@dataclasses.dataclass(frozen=True)
class Left:
    """What a server holds; all zero when nobody is there, but for its own tasks."""

    sessions: int
    places: int
    listeners: int
    encodings: int
    rows: int
    slots: int
    blocks: int
    connections: int
    tasks: frozenset[str]


def what_is_left(server: RunningServer) -> Left:
    """Count everything that a session takes."""
    bridge = server.services.bridge
    stats = bridge.stats
    tasks = asyncio.all_tasks(bridge._loop)
    return Left(
        sessions=len(server.services.sessions),
        places=sum(sum(c._open.values()) for c in _middleware(server)),
        listeners=len(bridge._listeners),
        encodings=len(bridge._encodings),
        rows=stats.rows_open if stats else 0,
        slots=stats.codec_slots_used if stats else 0,
        blocks=stats.blocks_used if stats else 0,
        connections=len(server.server.server_state.connections),
        tasks=frozenset(task.get_name() for task in tasks if "sess_" in task.get_name()),
    )


def _middleware(server: RunningServer) -> list[Any]:
    found, app = [], server.server.config.app.middleware_stack
    while app is not None:
        found += [app] if isinstance(app, Credentials) else []
        app = getattr(app, "app", None) or getattr(app, "_app", None)
    return found


NOTHING = Left(0, 0, 0, 0, 0, 0, 0, 0, frozenset())
