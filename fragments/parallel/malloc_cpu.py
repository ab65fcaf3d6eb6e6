"""Memory that glibc keeps for XLA on CPUs."""

import ctypes
import sys

from generator.language import splice


def keep_memory() -> None:
    """Has glibc keep what is freed: buffers that are new in each step cost a page fault every 4 KiB.

    To be called before JAX starts its threads: a heap of a thread's own would be too small for the buffers.
    """
    if sys.platform == "linux":
        M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # of malloc.h
        for option, value in (M_TRIM_THRESHOLD, -1), (M_MMAP_MAX, 0), (M_ARENA_MAX, 1):
            ctypes.CDLL(None).mallopt(option, value)


@splice("make_mesh.start")
def _():
    keep_memory()
