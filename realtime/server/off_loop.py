"""Blocking work on the server's small thread pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from realtime.server.services import Services

T = TypeVar("T")
Args = TypeVarTuple("Args")


async def off_loop(services: Services, work: Callable[[*Args], T], *args: *Args) -> T:
    """Run `work(*args)` on a worker thread. Awaiting one call before the next keeps their order."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(services.audio_pool, work, *args)
