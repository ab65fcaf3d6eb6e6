"""Writes to the KV cache one head at a time, in the order in which TPUs keep it in memory."""

import jax.numpy as jnp

from generator.language import splice


@splice("Pages.write", optional=True)
def _(self, page, slot, index):
    heads = jnp.arange(self.key.shape[1])  # one by one: for a slice, XLA would copy the pool
    index = page[..., None], heads, slot[:, :, None]  # [L, B, T, K]
