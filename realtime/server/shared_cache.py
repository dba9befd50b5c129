"""Values that are made once, whoever asks for them and however many do so at the same time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Literal, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


Answer = Literal["hit", "shared", "made"]
"""What was asked for was there, is being made for somebody else, or is made now."""


class SharedCache(Generic[K, V]):
    """Remembers at most `most_bytes` of values, by `size_bytes`; least recently used go first.

    Those who ask while a value is being made share that. Whoever leaves, leaves alone: the making
    goes on for the others. What could not be made is not remembered. `count` hears of each answer.
    Used on one event loop.
    """

    def __init__(
        self,
        most_bytes: int,
        size_bytes: Callable[[V], int],
        count: Callable[[Answer], None] = lambda answer: None,
    ) -> None:
        self._most_bytes = most_bytes
        self._size_bytes = size_bytes
        self._count = count
        self._bytes = 0
        self._values: OrderedDict[K, V] = OrderedDict()
        self._under_way: dict[K, asyncio.Future[V]] = {}

    async def get(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        """Return the value of `key`; `make` makes it. Raises what `make` raises."""
        if key in self._values:
            self._count("hit")
            self._values.move_to_end(key)
            return self._values[key]
        making = self._under_way.get(key)
        self._count("shared" if making else "made")
        if making is None:
            making = self._under_way[key] = asyncio.ensure_future(make())
            making.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(making)

    def _made(self, key: K, done: asyncio.Future[V]) -> None:
        del self._under_way[key]
        if done.cancelled() or done.exception():
            return
        self._values[key] = value = done.result()
        self._bytes += self._size_bytes(value)
        while self._bytes > self._most_bytes:
            self._bytes -= self._size_bytes(self._values.popitem(last=False)[1])
