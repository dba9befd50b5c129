"""How full the engine is while a load runs, where the server tells it at `GET /v1/engine`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

EVERY_S = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Fill:
    """The engine at one moment: rows that run, wait for a place, or wait for text or a listener."""

    at_s: float
    running: int
    queued: int
    parked: int
    step_ms: float


@contextlib.asynccontextmanager
async def watched(
    url: str, api_key: str | None, now_s: Callable[[], float]
) -> AsyncIterator[list[Fill]]:
    """Fill the list for as long as the block lasts; it stays empty where the server is silent."""
    fills: list[Fill] = []
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        watching = asyncio.create_task(_watch(client, fills, now_s), name="occupancy")
        try:
            yield fills
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching


async def _watch(client: httpx.AsyncClient, fills: list[Fill], now_s: Callable[[], float]) -> None:
    while True:
        try:
            answer = await client.get("/v1/engine")
        except httpx.HTTPError:
            return
        stats: Any = answer.json().get("stats") if answer.status_code == 200 else None
        if answer.status_code != 200:
            return
        if stats:
            fills.append(
                Fill(
                    at_s=now_s(),
                    running=stats["rows_running"],
                    queued=stats["rows_queued"],
                    parked=stats["rows_parked"],
                    step_ms=stats["step_ms"],
                )
            )
        await asyncio.sleep(EVERY_S)
