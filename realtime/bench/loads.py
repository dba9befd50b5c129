"""When requests are sent: as answers come, as strangers come, or many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from realtime.bench.trip import Trip
from realtime.bench.workload import Line

Speak = Callable[[Line], Awaitable[Trip]]


class Clock:
    """Seconds since it was made, on the monotonic clock."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self._start_s

    async def sleep(self, seconds: float) -> None:
        """Wait so long; not at all if that is past."""
        await asyncio.sleep(max(0.0, seconds))


async def closed_loop(speak: Speak, lines: Sequence[Line], concurrency: int) -> list[Trip]:
    """`concurrency` clients, each of which asks again as soon as it has its answer."""
    waiting = iter(lines)
    trips: list[Trip] = []

    async def client() -> None:
        for line in waiting:
            trips.append(await speak(line))

    async with asyncio.TaskGroup() as clients:
        for number in range(min(concurrency, len(lines))):
            clients.create_task(client(), name=f"client-{number}")
    return trips


async def open_loop(
    speak: Speak, lines: Sequence[Line], times_s: Sequence[float], clock: Clock
) -> list[Trip]:
    """Ask at the times given, from now on, whatever has become of what was asked before."""
    start_s = clock()

    async def ask(line: Line, at_s: float) -> Trip:
        await clock.sleep(start_s + at_s - clock())
        return await speak(line)

    async with asyncio.TaskGroup() as asking:
        tasks = [
            asking.create_task(ask(line, at_s), name=f"ask-{number}")
            for number, (line, at_s) in enumerate(zip(lines, times_s, strict=True))
        ]
    return [task.result() for task in tasks]
