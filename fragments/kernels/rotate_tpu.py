"""Rotation for TPUs: numbers of a head meet their partners by a product with a permutation."""

import jax.numpy as jnp

from generator.language import point, splice


@splice("rotate.rotated", optional=True)
def _(x, y, sin, cos):
    size = x.shape[-1]
    with point("rotate.partners", sin, cos, size):
        partner = jnp.roll(jnp.arange(size), size // 2)  # pairs x[i], x[i + H/2]
        sin = jnp.concatenate([-sin, sin], axis=-1)
        cos = jnp.concatenate([cos, cos], axis=-1)
    # exact, and cheaper than slices, which fill half of a TPU's lanes each
    partners = jnp.matmul(x, jnp.eye(size, dtype=x.dtype)[partner], precision="highest")
    y = (x * cos + partners * sin).astype(x.dtype)
