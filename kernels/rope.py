"""Rotary position embedding, half-split ("rotate half") form."""

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
