"""Memory that glibc keeps for XLA on CPUs."""

import ctypes
import sys

from generator.language import splice


def keep_memory() -> None:
    """Makes glibc keep freed memory: buffers that are new in each step cost a page fault every 4 KiB.

    Call it before JAX starts its threads: a thread's own heap would be too small for the buffers.
    """
    if sys.platform == "linux":
        M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # from malloc.h
        for option, value in (M_TRIM_THRESHOLD, -1), (M_MMAP_MAX, 0), (M_ARENA_MAX, 1):
            ctypes.CDLL(None).mallopt(option, value)


@splice("make_mesh.start")
def _():
    keep_memory()
