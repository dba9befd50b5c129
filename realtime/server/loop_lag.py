"""How late the event loop is: what everything on it waits for, whatever the cause."""

from __future__ import annotations

import asyncio

from prometheus_client import Histogram

EVERY_S = 0.05


async def watch_loop_lag(lag_s: Histogram) -> None:
    """Observe, until cancelled, how much later than asked a sleep ends."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + EVERY_S
        await asyncio.sleep(EVERY_S)
        lag_s.observe(max(0.0, loop.time() - due_s))
