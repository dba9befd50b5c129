"""Contexts that will be needed soon, prefilled while no row waits for prefill."""

from __future__ import annotations

import dataclasses

from engine.api import I32Grid, Warm
from engine.cache.kv import KVCache
from engine.cache.working_set import BLOCK
from engine.models.interface import Runner


@dataclasses.dataclass(slots=True)
class _Job:
    warm: Warm
    grid: I32Grid  # its full blocks: nothing else can be kept
    position: int
    blocks: list[bytes]


class WarmQueue:
    """Prefills one context at a time, in a slot of its own, and pins its blocks."""

    def __init__(self, runner: Runner, cache: KVCache, slot: int) -> None:
        self._runner = runner
        self._cache = cache
        self._slot = slot
        self._waiting: dict[str, Warm] = {}
        self._job: _Job | None = None

    def add(self, warm: Warm) -> None:
        """Queue a context; it takes the place of one with the same key that still waits."""
        self._waiting.pop(warm.key, None)
        self._waiting[warm.key] = warm

    def run(self, most_grid_rows: int) -> bool:
        """Prefill a piece; False when there is nothing to do."""
        if self._job is None and not self._start():
            return False
        job = self._job
        assert job is not None
        piece = job.grid[job.position : job.position + most_grid_rows]
        if len(piece):
            self._runner.prefill(self._slot, job.position, piece)
            job.position += len(piece)
        if job.position == len(job.grid):
            blocks = self._cache.keep(self._slot, job.grid, job.blocks)
            self._cache.pin(job.warm.key, blocks, job.warm.pin_s)
            self._job = None
        return True

    def clear(self) -> None:
        """Forget what waits and what is half done."""
        self._waiting.clear()
        if self._job is not None:
            self._cache.release(self._job.blocks)
            self._job = None

    def _start(self) -> bool:
        """Begin with the next context that is not held whole; those that are get their pin."""
        while self._waiting:
            warm = self._waiting.pop(next(iter(self._waiting)))
            grid = warm.grid[: len(warm.grid) // BLOCK * BLOCK]
            blocks = self._cache.hold(grid)
            if len(blocks) * BLOCK < len(grid):
                self._cache.gather(self._slot, blocks)
                self._job = _Job(warm, grid, len(blocks) * BLOCK, blocks)
                return True
            self._cache.pin(warm.key, blocks, warm.pin_s)
        return False
