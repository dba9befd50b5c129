"""What is made once for all who ask, and what of it is remembered."""

from __future__ import annotations

import asyncio

import pytest

from realtime.server.shared_cache import SharedCache

pytestmark = pytest.mark.anyio


class Kitchen:
    """Makes bytes when told to, and counts."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.go_on = asyncio.Event()

    async def make(self, name: str) -> bytes:
        self.made.append(name)
        await self.go_on.wait()
        if name == "bad":
            raise ValueError("no")
        return bytes(10)


@pytest.fixture
def cache() -> SharedCache[str, bytes]:
    return SharedCache(most_bytes=25, size_bytes=len)


async def test_all_who_ask_at_once_share_the_making(cache: SharedCache[str, bytes]) -> None:
    kitchen = Kitchen()
    asking = [asyncio.create_task(cache.get("a", lambda: kitchen.make("a"))) for _ in range(4)]
    await asyncio.sleep(0)
    kitchen.go_on.set()
    values = await asyncio.gather(*asking)
    assert all(value is values[0] for value in values)
    assert await cache.get("a", lambda: kitchen.make("a")) is values[0]
    assert kitchen.made == ["a"]


async def test_who_leaves_leaves_alone(cache: SharedCache[str, bytes]) -> None:
    kitchen = Kitchen()
    first, second = (
        asyncio.create_task(cache.get("a", lambda: kitchen.make("a"))) for _ in range(2)
    )
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    kitchen.go_on.set()
    assert await second == bytes(10)
    assert kitchen.made == ["a"]


async def test_what_failed_is_tried_again(cache: SharedCache[str, bytes]) -> None:
    kitchen = Kitchen()
    kitchen.go_on.set()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await cache.get("bad", lambda: kitchen.make("bad"))
    assert kitchen.made == ["bad", "bad"]


async def test_the_least_recently_used_make_room(cache: SharedCache[str, bytes]) -> None:
    kitchen = Kitchen()
    kitchen.go_on.set()
    for name in ("a", "b", "a", "c", "a", "b"):
        await cache.get(name, lambda name=name: kitchen.make(name))
    assert kitchen.made == ["a", "b", "c", "b"]
