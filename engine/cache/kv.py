"""Contexts in the working set: taken from cached blocks where they are known, kept for later."""

from __future__ import annotations

import time

import numpy as np

from engine.api import I32Grid
from engine.cache.blocks import BlockPool, block_keys
from engine.cache.working_set import BLOCK, WorkingSet


class KVCache:
    """The working set and the block pool of one model.

    Pins keep the contexts of idle sessions from being dropped; when memory runs short, the pin that
    was renewed least recently is given up.
    """

    def __init__(self, working: WorkingSet, pool: BlockPool) -> None:
        self.working = working
        self.pool = pool
        pool.give_way = self._drop_oldest_pin
        self._pins: dict[str, tuple[list[bytes], float]] = {}  # blocks and expiry, oldest first

    def restore(self, slot: int, grid: I32Grid) -> list[bytes]:
        """Gather the longest known beginning of `grid` into a slot; returns its blocks' keys.

        The caller refers to those blocks until it releases them.
        """
        keys = self.hold(grid)
        self.gather(slot, keys)
        return keys

    def hold(self, grid: I32Grid) -> list[bytes]:
        """Refer to the blocks of the longest known beginning of `grid`; returns their keys."""
        keys = block_keys(grid)
        return self.pool.acquire(keys[: self.pool.match(keys)])

    def gather(self, slot: int, keys: list[bytes]) -> None:
        """Copy blocks that the caller refers to into the beginning of a slot."""
        self.pool.copy_to(self.working, slot, keys)

    def keep(self, slot: int, grid: I32Grid, keys: list[bytes]) -> list[bytes]:
        """Keep the full blocks of a slot that holds `grid`, beyond those of `keys`.

        Returns the keys of all blocks that the caller refers to now.
        """
        fresh = block_keys(grid[len(keys) * BLOCK :], after=keys[-1] if keys else b"")
        kept = self.pool.keep(self.working, slot, fresh, len(keys))
        return keys + fresh[:kept]

    def release(self, keys: list[bytes]) -> None:
        """The caller no longer refers to these blocks; they stay while there is room."""
        self.pool.release(keys)

    def pin(self, key: str, blocks: list[bytes], pin_s: float) -> None:
        """Hand references over to a pin, which replaces the one of the same key."""
        self._unpin(key)
        self._pins[key] = (blocks, time.monotonic() + pin_s)

    def expire_pins(self) -> None:
        """Release pins whose time is over."""
        now = time.monotonic()
        for key in [key for key, (_, expiry) in self._pins.items() if expiry <= now]:
            self._unpin(key)

    def unpin_all(self) -> None:
        """Release every pin."""
        for key in list(self._pins):
            self._unpin(key)

    def _drop_oldest_pin(self) -> bool:
        """Give up one pin; False when there is none."""
        oldest = next(iter(self._pins), None)
        if oldest is not None:
            self._unpin(oldest)
        return oldest is not None

    def _unpin(self, key: str) -> None:
        if key in self._pins:
            self.pool.release(self._pins.pop(key)[0])


def join(pieces: list[I32Grid]) -> I32Grid:
    """One grid from its pieces."""
    return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
