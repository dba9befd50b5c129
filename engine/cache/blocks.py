"""KV blocks that outlive their row, found by the content that they hold.

A block is 16 grid rows. Its key hashes those rows and, through the previous block's key, everything
before them: equal keys mean equal contexts. A block is never written again, so whoever knows its
content may share it: rows refer to blocks by count, and go on in a working set of their own. Blocks
that nobody refers to stay until their room is needed, least recently used first, and of one context
the last first; then they move to host memory, where there is a place for them, or are forgotten.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch

from engine.api import I32Grid
from engine.cache.host import HostBlocks
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
    """`store` [layers, 2, blocks, kv_heads, BLOCK, head_dim].

    When all blocks are referred to, `give_way` may end somebody's references and say so.
    """

    def __init__(
        self,
        config: StackConfig,
        blocks: int,
        dtype: torch.dtype,
        device: torch.device,
        host_blocks: int = 0,
    ) -> None:
        shape = (config.layers, 2, blocks, config.kv_heads, BLOCK, config.head_dim)
        self.store = lazy_zeros(shape, dtype, device)
        self.total = blocks
        self.host = HostBlocks(host_blocks)
        self.give_way: Callable[[], bool] = lambda: False
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
        """How many leading blocks are held, here or in host memory."""
        held = 0
        while held < len(keys) and (keys[held] in self._by_key or keys[held] in self.host):
            held += 1
        return held

    def acquire(self, keys: Sequence[bytes]) -> list[bytes]:
        """Refer to leading blocks that are held; returns those that there was room for."""
        here = [key for key in keys if key in self._by_key]
        for key in here:  # before another comes in and takes its room
            self._refer(key)
        for place, key in enumerate(keys):
            if key not in self._by_key and not self._bring_back(key):
                self.release([key for key in here if key in keys[place:]])
                return list(keys[:place])
        return list(keys)

    def _bring_back(self, key: bytes) -> bool:
        """Move a block here from host memory and refer to it; False if it is not to be had."""
        if key not in self.host:
            return False
        content = self.host.take(key)
        if not self._make_room():
            self.host.put(key, content)
            return False
        self._by_key[key] = block = self._free.pop()
        self.store[:, :, block] = content
        self._refer(key)
        return True

    def _refer(self, key: bytes) -> None:
        self._references[key] = self._references.get(key, 0) + 1

    def release(self, keys: Sequence[bytes]) -> None:
        """Undo one `acquire` of each key."""
        for key in reversed(keys):  # a block is of no use without those before it
            self._references[key] -= 1
            self._by_key.move_to_end(key)
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
                self.host.discard(key)
                self._by_key[key] = self._free.pop()
                fresh.append((kept, self._by_key[key]))
            self._refer(key)
            kept += 1
        if fresh:
            source = working.blocks(slot, first, first + kept)
            index = torch.tensor(fresh, device=self.store.device)
            self.store.index_copy_(2, index[:, 1], source.index_select(2, index[:, 0]))
        return kept

    def _make_room(self) -> bool:
        while not self._free:
            key = next((key for key in self._by_key if key not in self._references), None)
            if key is not None:
                block = self._by_key.pop(key)
                self.host.put(key, self.store[:, :, block])
                self._free.append(block)
            elif not self.give_way():
                return False
        return True
