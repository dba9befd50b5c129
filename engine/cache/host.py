"""KV blocks that had to leave the device, in host memory, until they are needed again."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor


class HostBlocks:
    """At most `most` blocks by key; with none (the default of the engine) nothing is kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._blocks: OrderedDict[bytes, Tensor] = OrderedDict()  # least recently used first

    def __contains__(self, key: bytes) -> bool:
        return key in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def put(self, key: bytes, block: Tensor) -> None:
        """Copy a block [layers, 2, kv_heads, BLOCK, head_dim]; the oldest make room."""
        if not self._most:
            return
        while len(self._blocks) >= self._most:
            self._blocks.popitem(last=False)
        on_host = torch.empty(block.shape, dtype=block.dtype, pin_memory=block.is_cuda)
        self._blocks[key] = on_host.copy_(block)

    def take(self, key: bytes) -> Tensor:
        """Remove a block and return it."""
        return self._blocks.pop(key)

    def discard(self, key: bytes) -> None:
        """Forget a block, if it is here."""
        self._blocks.pop(key, None)
