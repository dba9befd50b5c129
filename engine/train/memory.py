"""Memory between training steps."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_NEVER_BYTES = 2**31 - 1


def keep_freed_memory() -> None:
    """Have glibc keep what a step frees for the next one.

    By default every activation of more than a few megabytes comes as fresh pages that the kernel
    has to clear, each step anew: a tenth of the time of a small model. Elsewhere this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, _NEVER_BYTES)
