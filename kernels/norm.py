"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last axis: `x * rsqrt(mean(x^2) + eps)` in float32, cast back, then scale.

    `x` [..., D] of any float dtype, `weight` of the last axis or axes; the result has `x`'s dtype.
    """
    if x.dtype == torch.float32:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=eps) * weight
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return scaled.to(x.dtype) * weight.to(x.dtype)
