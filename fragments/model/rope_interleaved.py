"""Interleaved rotary embedding: pairs are neighbours, x[2 i] and x[2 i + 1].

Source: Su et al. 2021, arXiv 2104.09864, section 3.4.2, equation 34.
"""

import jax.numpy as jnp

from generator.language import requires, splice

requires("rope")


@splice("rotate.pairs", optional=True)
def _(x, first, second):
    first, second = x[..., ::2].astype(jnp.float32), x[..., 1::2].astype(jnp.float32)


@splice("rotate.joined", optional=True)
def _(rotated, y):
    y = jnp.stack(rotated, axis=-1)  # [B, T, N, H/2, 2]
    y = y.reshape(*y.shape[:-2], -1)


@splice("rotate.partners", optional=True)
def _(x, partners, sin, cos):
    partners = jnp.eye(x.shape[-1], dtype=x.dtype)[jnp.arange(x.shape[-1]) ^ 1]  # pairs x[2 i], x[2 i + 1]
    sin = jnp.stack([-sin, sin], axis=-1).reshape(*sin.shape[:-1], -1)
    cos = jnp.repeat(cos, 2, axis=-1)
