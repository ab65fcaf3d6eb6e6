"""Measured peak FLOP/s, for processors whose data sheet does not give it."""

import timeit

import jax
import jax.numpy as jnp

from generator.language import splice


def peak_flops(dtype: str) -> tuple[float, str]:
    """Returns the FLOP/s of a matrix product, the best of ten, times the processes; and its label."""
    x = jnp.ones((1024, 1024), dtype)
    product = jax.jit(jnp.matmul).lower(x, x).compile()
    seconds = min(timeit.repeat(lambda: product(x, x).block_until_ready(), number=1, repeat=10))
    peak = 2 * 1024**3 / seconds * jax.process_count()
    return peak, f"{peak / 1e9:,.0f} GFLOP/s, a {dtype} matrix product measured now"


@splice("Monitor.peak")
def _(self, config, meaning):
    self.peak, meaning = peak_flops(config.dtype)
