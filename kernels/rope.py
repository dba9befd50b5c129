"""Rotary position embedding: half-split ("rotate half") form, and interleaved pairs."""

from __future__ import annotations

import torch
from torch import Tensor


def rope_table(
    positions: int,
    head_dim: int,
    theta: float,
    factor: float = 1.0,
    device: torch.device | None = None,
) -> Tensor:
    """Rotations of positions 0.., f32 `[positions, 2, head_dim]`: cosines, then signed sines.

    Angle = position * theta^(-2i/head_dim) / factor for pair i. The first half of the sines is
    negated, so that `apply_rope` needs no negation of its own.
    """
    half = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    angles = torch.arange(positions, dtype=torch.float32, device=device)[:, None] * (
        theta**-half / factor
    )
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], 1)


def apply_rope(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate `x` [N, heads, D] by `rotation` [N, 2, D] (rows of `rope_table`, in `x`'s dtype)."""
    cos, sin = rotation[:, None].unbind(2)
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def rope_pairs_table(
    positions: int, head_dim: int, theta: float, device: torch.device | None = None
) -> Tensor:
    """Like `rope_table`, for `apply_rope_pairs`: channels 2i and 2i+1 turn by the same angle.

    Every cosine stands twice in a row; of the sines the first of each two is negated.
    """
    cos, sin = rope_table(positions, head_dim, theta, device=device).unbind(1)
    half = head_dim // 2
    cosines = cos[:, :half].repeat_interleave(2, -1)
    sines = torch.stack([sin[:, :half], sin[:, half:]], -1).flatten(1)
    return torch.stack([cosines, sines], 1)


def apply_rope_pairs(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate `x` [N, heads, D] by `rotation` [N, 2, D] (rows of `rope_pairs_table`)."""
    cos, sin = rotation[:, None].unbind(2)
    swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return x * cos + swapped * sin
