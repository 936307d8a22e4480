"""A setting of the C allocator with which freed memory goes back to the operating system."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD = -1  # from malloc.h
M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 2 * 2**20  # bytes


def return_large_blocks() -> bool:
    """Make the allocator return each block of 2 MiB or more to the system when it is freed.

    By default glibc raises this threshold to the size of the largest freed block, up to 32 MiB.
    The matrices of a lesson (19 MB each) would then come from the heaps of the threads that
    learned it and leave holes there: more than 1 GB after six lessons.

    Returns:
        True if the allocator accepted the setting; False on systems without `mallopt`, such as
        macOS, Windows and Linux with musl (which does not need it).
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)) and bool(
        mallopt(M_TRIM_THRESHOLD, 4 * LARGE_BLOCK)
    )
