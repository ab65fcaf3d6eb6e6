"""Rotary embedding of neighbours: each even number of a head and the one after it are a pair.

Source: Su et al. 2021, arXiv 2104.09864, section 3.4.2, equation 34.
"""

import jax.numpy as jnp

from generator.language import requires, splice

requires("rope")


@splice("rotate.pairs")
def _(x, first, second):
    first, second = x[..., ::2].astype(jnp.float32), x[..., 1::2].astype(jnp.float32)


@splice("rotate.joined")
def _(rotated, y):
    y = jnp.stack(rotated, axis=-1)  # [B, T, N, H/2, 2]
    y = y.reshape(*y.shape[:-2], -1)
