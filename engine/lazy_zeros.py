"""Big buffers that cost memory only where they are written."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; a CPU commits their memory page by page, as it is written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size_bytes = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(size_bytes, np.uint8)).view(dtype).view(shape)
