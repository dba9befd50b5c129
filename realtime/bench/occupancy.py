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


@dataclasses.dataclass(slots=True)
class EngineView:
    """What was seen of an engine; nothing where the server is silent.

    `cancel_ms` has, by row, the time from a cancellation to its places being free.
    """

    fills: list[Fill] = dataclasses.field(default_factory=list)
    cancel_ms: dict[int, float] = dataclasses.field(default_factory=dict)

    def add(self, at_s: float, snapshot: dict[str, Any]) -> None:
        """Take a snapshot."""
        if stats := snapshot["stats"]:
            fill = Fill(
                at_s=at_s,
                running=stats["rows_running"],
                queued=stats["rows_queued"],
                parked=stats["rows_parked"],
                step_ms=stats["step_ms"],
            )
            self.fills.append(fill)
        for row in snapshot["over"]:
            if row["cancel_ms"] is not None:
                self.cancel_ms[row["row"]] = row["cancel_ms"]


@contextlib.asynccontextmanager
async def watched(
    url: str, api_key: str | None, now_s: Callable[[], float]
) -> AsyncIterator[EngineView]:
    """Look at the engine for as long as the block lasts, and once more at its end.

    What was over before is not of this block.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        before = await _snapshot(client)
        view = EngineView()
        if before is None:
            yield view
            return
        watching = asyncio.create_task(_watch(client, view, now_s), name="occupancy")
        try:
            yield view
        finally:
            watching.cancel()
            if last := await _snapshot(client):
                view.add(now_s(), last)
            for row in before["over"]:
                view.cancel_ms.pop(row["row"], None)


async def _watch(client: httpx.AsyncClient, view: EngineView, now_s: Callable[[], float]) -> None:
    while (snapshot := await _snapshot(client)) is not None:
        view.add(now_s(), snapshot)
        await asyncio.sleep(EVERY_S)


async def _snapshot(client: httpx.AsyncClient) -> dict[str, Any] | None:
    """What the server says of its engine, if it knows the question."""
    try:
        answer = await client.get("/v1/engine")
        found = answer.json() if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None
    known = isinstance(found, dict) and {"stats", "over"} <= found.keys()
    return found if known else None
