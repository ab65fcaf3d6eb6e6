"""Keys and values written to pages in rows of one head each, as TPUs have them in memory."""

import jax.numpy as jnp

from generator.language import splice


@splice("Pages.write")
def _(self, page, slot, at):
    heads = jnp.arange(self.key.shape[1])  # each by itself: XLA else copies the pool, in another order
    at = page[..., None], heads, slot[:, :, None]  # [L, B, T, K]
