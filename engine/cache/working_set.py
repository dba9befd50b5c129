"""Dense keys and values of the sequences that are running, one slot each.

A row's cached context is gathered here once, when it is admitted; from then on positions are only
appended. Slot 0 is scratch: the padding rows of a batch write and read there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.lazy_zeros import lazy_zeros
from engine.models.qwen3 import Attend, StackConfig
from kernels.attention import attend_rows, attend_sequence

BLOCK = 16
"""Grid rows in a KV block."""
SCRATCH_SLOT = 0
LENGTH_STEP = 64
"""Attention reads a multiple of this many positions."""


class WorkingSet:
    """`store` [layers, 2, slots, kv_heads, positions, head_dim]: keys, then values."""

    def __init__(
        self,
        config: StackConfig,
        slots: int,
        max_positions: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.max_positions = max_positions
        positions = -(-max_positions // LENGTH_STEP) * LENGTH_STEP
        shape = (config.layers, 2, slots, config.kv_heads, positions, config.head_dim)
        self.store = lazy_zeros(shape, dtype, device)
        self.index = torch.arange(positions, device=device)

    def append_rows(self, slots: Tensor, positions: Tensor, used: range, reach: int) -> Attend:
        """Attend with one new position for each of several sequences.

        `slots`, `positions` i64 [N]: where each new position goes. `used` spans all of `slots`;
        `reach` is the longest sequence after the step.
        """
        length = _round_up(reach)
        local = slots - used.start
        _, _, _, heads, room, head_dim = self.store.shape
        places = ((slots[:, None] * heads + self.index[:heads]) * room + positions[:, None]).view(
            -1
        )
        last = positions.new_zeros(len(used)).index_copy_(0, local, positions)
        bias = self._bias(last, length)[:, None, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.store[layer]
            keys.view(-1, head_dim).index_copy_(0, places, k.reshape(-1, head_dim))
            values.view(-1, head_dim).index_copy_(0, places, v.reshape(-1, head_dim))
            spread = q.new_zeros(len(used), *q.shape[1:]).index_copy_(0, local, q)
            span = slice(used.start, used.stop)
            out = attend_rows(spread, keys[span, :, :length], values[span, :, :length], bias)
            return out.index_select(0, local)

        return attend

    def append_sequence(self, slot: int, start: int, new: int) -> Attend:
        """Attend with `new` positions of one sequence, from position `start` on."""
        stop = start + new
        length = _round_up(stop)
        bias = self._bias(self.index[start:stop], length)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.store[layer, :, slot]
            keys[:, start:stop] = k.transpose(0, 1)
            values[:, start:stop] = v.transpose(0, 1)
            return attend_sequence(q, keys[:, :length], values[:, :length], bias)

        return attend

    def blocks(self, slot: int, first: int, stop: int) -> Tensor:
        """Blocks first..stop-1 of a slot, [layers, 2, blocks, kv_heads, BLOCK, head_dim]."""
        span = self.store[:, :, slot, :, first * BLOCK : stop * BLOCK]
        layers, _, heads, _, head_dim = span.shape
        return span.view(layers, 2, heads, stop - first, BLOCK, head_dim).transpose(2, 3)

    def _bias(self, last: Tensor, length: int) -> Tensor:
        """[N, length]: 0 up to position `last` [N], -inf beyond."""
        hidden = self.index[:length] > last[:, None]
        return torch.zeros_like(hidden, dtype=self.store.dtype).masked_fill_(hidden, float("-inf"))


def _round_up(length: int) -> int:
    return -(-length // LENGTH_STEP) * LENGTH_STEP
