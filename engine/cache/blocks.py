"""KV blocks that outlive their row, found by the content that they hold.

A block is 16 grid rows. Its key hashes those rows and, through the previous block's key, everything
before them: equal keys mean equal contexts. Blocks are shared by reference count; those that nobody
refers to stay until their room is needed, least recently used first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import torch

from engine.api import I32Grid
from engine.cache.working_set import BLOCK, WorkingSet
from engine.lazy_zeros import lazy_zeros
from engine.models.qwen3 import StackConfig


def block_keys(grid: I32Grid, after: bytes = b"") -> list[bytes]:
    """Keys of the full blocks of a grid [T, 1 + n_vq]; `after` is the key of what precedes it."""
    keys = []
    for start in range(0, len(grid) - BLOCK + 1, BLOCK):
        rows = grid[start : start + BLOCK].astype("<i4").tobytes()
        after = hashlib.blake2b(rows, key=after, digest_size=16).digest()
        keys.append(after)
    return keys


class BlockPool:
    """`store` [layers, 2, blocks, kv_heads, BLOCK, head_dim]."""

    def __init__(
        self, config: StackConfig, blocks: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (config.layers, 2, blocks, config.kv_heads, BLOCK, config.head_dim)
        self.store = lazy_zeros(shape, dtype, device)
        self.total = blocks
        self._free = list(range(blocks))
        self._by_key: OrderedDict[bytes, int] = OrderedDict()  # least recently used first
        self._references: dict[bytes, int] = {}

    @property
    def referenced(self) -> int:
        """Blocks that somebody refers to."""
        return len(self._references)

    @property
    def used(self) -> int:
        """Blocks that hold content."""
        return len(self._by_key)

    def match(self, keys: Sequence[bytes]) -> int:
        """How many leading blocks are held."""
        held = 0
        while held < len(keys) and keys[held] in self._by_key:
            held += 1
        return held

    def acquire(self, keys: Sequence[bytes]) -> None:
        """Refer to blocks that are held."""
        for key in keys:
            self._references[key] = self._references.get(key, 0) + 1
            self._by_key.move_to_end(key)

    def release(self, keys: Sequence[bytes]) -> None:
        """Undo one `acquire` of each key."""
        for key in keys:
            self._references[key] -= 1
            if not self._references[key]:
                del self._references[key]

    def copy_to(self, working: WorkingSet, slot: int, keys: Sequence[bytes]) -> None:
        """Gather held blocks into the beginning of a slot."""
        if keys:
            ids = torch.tensor([self._by_key[key] for key in keys], device=self.store.device)
            working.blocks(slot, 0, len(keys)).copy_(self.store.index_select(2, ids))

    def keep(self, working: WorkingSet, slot: int, keys: Sequence[bytes], first: int) -> int:
        """Copy blocks first.. of a slot into the pool and refer to them; returns how many.

        `keys` are those of the slot's blocks from `first` on. Fewer than asked are kept when
        everything else is referred to.
        """
        fresh, kept = [], 0
        for key in keys:
            if key not in self._by_key:
                if not self._make_room():
                    break
                self._by_key[key] = self._free.pop()
                fresh.append((kept, self._by_key[key]))
            self.acquire([key])
            kept += 1
        if fresh:
            source = working.blocks(slot, first, first + kept)
            index = torch.tensor(fresh, device=self.store.device)
            self.store.index_copy_(2, index[:, 1], source.index_select(2, index[:, 0]))
        return kept

    def _make_room(self) -> bool:
        if self._free:
            return True
        for key, block in self._by_key.items():
            if key not in self._references:
                del self._by_key[key]
                self._free.append(block)
                return True
        return False
