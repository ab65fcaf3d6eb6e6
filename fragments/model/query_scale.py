"""Scales queries, before `attend` divides scores by the root of the head size."""

import jax.numpy as jnp

from generator.language import requires, splice

requires("multipliers or query_scalar")


@splice("Attention.heads", after="qk_norm rope", optional=True)
def _(self, q):
    q = (q.astype(jnp.float32) * self.query_scale).astype(q.dtype)
