"""Keys and values that are not finite do not stay in pages, whose next sequence multiplies them, by 0."""

import jax
import jax.numpy as jnp

from generator.language import requires, splice
from generator.language.roles import Cache

requires("engine_adapters", "pages/pages")


def keep_finite(cache: Cache) -> Cache:
    """Replaces keys and values that are not finite by 0, as an adapter that overflows may give them."""
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), cache)


@splice("Attention.in_pages", before="attend_token int8", optional=True)
def _(cache):
    cache = keep_finite(cache)
