"""Sliding-window attention of one transformer stage: over a whole sequence, or over slots' rings.

Both know the absolute positions of the tokens they are given, so they also rotate queries and keys.
Token i sees token j when 0 <= i - j < window. Keys are kept rotated, values as they are.
"""

from __future__ import annotations

import math
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.codec.config import TransformerConfig
from engine.lazy_zeros import lazy_zeros

Semantics = Literal["exact", "chunk_complete"]
"""What a chunk sees of the past. `exact`: the full window, as if all had been one sequence.
`chunk_complete`: a ring of `window` tokens that the whole chunk is written to before any of its
tokens looks, as the v1 reference streams: a chunk's first tokens lose the oldest they would see."""


class Attention(Protocol):
    """What a stage asks of the past, in one call of the stage."""

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        """Attend: `qkv` [B, T, 3, heads, head_dim], overwritten; returns [B, T, d_model]."""
        ...


def rotation(positions: Tensor, config: TransformerConfig) -> Tensor:
    """Rotations c64 [..., head_dim / 2] of token `positions`: exp(i * position * period^(-2k/D)).

    Angles are float32 products, as in the reference: long streams agree with it only if they are.
    """
    pairs = torch.arange(config.head_dim // 2, dtype=torch.float32, device=positions.device)
    speeds = torch.exp(pairs * (-math.log(config.max_period) * 2 / config.head_dim))
    angles = positions.float()[..., None] * speeds
    return torch.complex(angles.cos(), angles.sin())


def rotate_(x: Tensor, turns: Tensor) -> None:
    """Rotate neighbouring channels (2k, 2k+1) of `x` [..., D] by `turns` [..., D/2], in place."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    x.copy_(torch.view_as_real(pairs * turns).flatten(-2))


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Softmax attention. `q` [B, T, H, D], `k`, `v` [B, L, H, D], `visible` 0 or -inf [B, 1, T, L].

    A token that sees nothing gets 0. Returns [B, T, H * D].
    """
    out = scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=visible
    )
    return out.transpose(1, 2).flatten(2)


class WholeSequence:
    """Attention of a sequence that is there from its first token to its last: the reference."""

    BLOCK_TOKENS = 1024

    def __init__(self, config: TransformerConfig, tokens: int, device: torch.device) -> None:
        self._window = config.window_tokens
        self._positions = torch.arange(tokens, device=device)
        self._turns = rotation(self._positions, config)[:, None, None]

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        rotate_(qkv[:, :, :2], self._turns)
        q, k, v = qkv.unbind(2)
        blocks = []
        # In blocks, so that memory grows with the length and not with its square.
        for start in range(0, max(1, q.shape[1]), self.BLOCK_TOKENS):
            end = start + self.BLOCK_TOKENS
            first = max(0, start - self._window + 1)
            distance = self._positions[start:end, None] - self._positions[first:end]
            visible = _bias((distance >= 0) & (distance < self._window), q.dtype)
            blocks.append(attend(q[:, start:end], k[:, first:end], v[:, first:end], visible))
        return torch.cat(blocks, 1)


class Ring:
    """Keys and values of one stage, for every slot a ring that the token's position indexes.

    `kv` [layers, slots * capacity, 2, heads, head_dim]: position p of a slot lives at p % capacity.
    What of it is valid follows from how many tokens the slot has consumed.
    """

    def __init__(
        self,
        config: TransformerConfig,
        slots: int,
        extra_frames: int,
        *,
        semantics: Semantics,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._config = config
        self._semantics = semantics
        self.capacity = config.window_tokens + extra_frames * config.tokens_per_frame
        shape = (config.layers, slots * self.capacity, 2, config.heads, config.head_dim)
        self.kv = lazy_zeros(shape, dtype, device)

    def clear_before_start(self, slot: int) -> None:
        """Zero the rows that stand for positions before a stream's first token.

        They are invisible, but a NaN there, from a broken stream before, would reach the sums.
        """
        end = (slot + 1) * self.capacity
        self.kv[:, end - self._config.window_tokens + 1 : end].zero_()

    def at(self, slots: Tensor, frames: Tensor, new_frames: int) -> Attention:
        """Attention of the next `new_frames` frames of `slots` i64 [B].

        `frames` i64 [B] is how many each slot has consumed. The number of tensor operations and
        the sizes of all tensors depend on B and `new_frames` alone, never on `frames`.
        """
        window, new = self._config.window_tokens, new_frames * self._config.tokens_per_frame
        start = (frames * self._config.tokens_per_frame)[:, None]
        # Row u of what is read holds position start - (window - 1) + u.
        key = torch.arange(window - 1 + new, device=slots.device)
        query = torch.arange(new, device=slots.device)[:, None]
        band = (key >= query) & (key < query + window)
        if self._semantics == "chunk_complete":
            band = band & (key >= new - 1)
        positions = start - (window - 1) + key
        visible = band & (positions >= 0)[:, None, None]
        rows = slots[:, None] * self.capacity + positions % self.capacity
        turns = rotation(positions[:, window - 1 :], self._config)[:, :, None, None]
        return _RingAttention(self.kv, rows, new, turns, _bias(visible, self.kv.dtype))


class _RingAttention:
    def __init__(self, kv: Tensor, rows: Tensor, new: int, turns: Tensor, visible: Tensor) -> None:
        self._kv = kv
        self._shape = rows.shape
        self._read = rows.flatten()
        self._write = rows[:, -new:].flatten()
        self._turns = turns
        self._visible = visible

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        rotate_(qkv[:, :, :2], self._turns)
        ring = self._kv[layer]
        ring.index_copy_(0, self._write, qkv[:, :, 1:].flatten(0, 1))
        k, v = ring.index_select(0, self._read).unflatten(0, self._shape).unbind(2)
        return attend(qkv[:, :, 0], k, v, self._visible)


def _bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return bias.masked_fill_(~visible, float("-inf"))
