"""Which errors say that memory has run out, so that no work of this process can be relied on."""

from __future__ import annotations

import torch

_CPU_ALLOCATOR = "can't allocate memory"  # torch raises a plain RuntimeError on the CPU


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on the host or on the device."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or _CPU_ALLOCATOR in str(error)
