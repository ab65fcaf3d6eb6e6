"""Values padded to the size of keys, for kernels that take one size of heads."""

import jax.numpy as jnp

from generator.marks import requires, splice
from generator.roles import attend

requires("latent_attention")


@splice("Attention.attend_heads")
def _(q, k, v, context):
    padding = q.shape[-1] - v.shape[-1]  # the kernel takes heads of one size
    context = attend(q, k, jnp.pad(v, ((0, 0), (0, 0), (0, 0), (0, padding))))[..., : v.shape[-1]]  # [B, T, N, U]
