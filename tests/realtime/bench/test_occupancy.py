"""What the bench sees of the engine beside a load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from realtime.bench.loads import Clock
from realtime.bench.occupancy import EngineView, Fill, watched
from realtime.bench.summary import Round, summarise
from realtime.sdk import Client

if TYPE_CHECKING:
    from tests.running_server import RunningServer

Eventually = Callable[[Callable[[], Any]], Awaitable[None]]


def snapshot(*cancelled: tuple[int, float | None], running: int = 1) -> dict[str, Any]:
    stats = {"rows_running": running, "rows_queued": 2, "rows_parked": 3, "step_ms": 4.5}
    return {"stats": stats, "over": [{"row": row, "cancel_ms": ms} for row, ms in cancelled]}


def test_what_snapshots_add_up_to() -> None:
    view = EngineView()
    view.add(0.5, snapshot((1, None), (2, 7.0)))
    view.add(0.75, snapshot((2, 7.0), (3, 9.0), running=0))
    view.add(1.0, {"stats": None, "over": []})
    assert view.fills == [Fill(0.5, 1, 2, 3, 4.5), Fill(0.75, 0, 2, 3, 4.5)]
    assert view.cancel_ms == {2: 7.0, 3: 9.0}
    part = Round((), 1.0, fills=tuple(view.fills), slot_free_ms=tuple(view.cancel_ms.values()))
    assert summarise([part])["cancels"]["to_slot_free_ms"]["mean"] == 8.0
    assert summarise([part])["occupancy"]["running"]["mean"] == 0.5


async def unfinished() -> AsyncIterator[str]:
    yield "One two three."
    await asyncio.Event().wait()


@pytest.mark.anyio
async def test_cancels_are_seen_to_the_end_and_not_from_before(
    running_server: RunningServer, eventually: Eventually
) -> None:
    rows = running_server.services.bridge.rows

    async def cut_one() -> None:
        async with Client(running_server.base_url) as session:
            reply = session.say(unfinished())
            await eventually(lambda: rows.running)
            await reply.cancel()
        await eventually(lambda: not rows.running)

    await cut_one()
    async with watched(running_server.base_url, None, Clock()) as view:
        await cut_one()
    assert len(rows.over) == 2
    assert view.cancel_ms.keys() == {max(rows.over)}
    assert view.fills


@pytest.mark.anyio
async def test_a_server_that_tells_nothing_is_no_trouble() -> None:
    async with watched("http://127.0.0.1:1", None, Clock()) as view:
        pass
    assert view == EngineView()
