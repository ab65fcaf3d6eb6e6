"""Memory that glibc keeps for XLA on CPUs."""

import ctypes
import sys

import jax

from generator.language import splice


def keep_memory() -> None:
    """Makes glibc keep freed memory: buffers that are new in each step cost a page fault every 4 KiB.

    Call it before JAX starts its threads: a thread's own heap would be too small for the buffers.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # else two steps at once have buffers
    if sys.platform == "linux":
        for option, value in (-1, -1), (-4, 0), (-8, 1):  # M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX of malloc.h
            ctypes.CDLL(None).mallopt(option, value)


@splice("command.given", optional=True)
def _():
    from generator.language.roles import keep_memory

    keep_memory()
