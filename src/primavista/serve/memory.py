"""Memory that was freed goes back to the system."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGE = 2 * 2**20  # bytes


def give_back_large_blocks() -> bool:
    """Let every block of 2 MiB or more have pages of its own, which the system has back when it is freed; False: not here.

    glibc raises that bound to the size of what was freed last, up to 32 MiB, so that the matrices of a lesson (19 MB each)
    would come from the heaps of the threads that learned it, and leave holes there: over 1 GB after six lessons.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and needs none
    return (
        mallopt is not None
        and bool(mallopt(M_MMAP_THRESHOLD, LARGE))
        and bool(mallopt(M_TRIM_THRESHOLD, 4 * LARGE))
    )
