"""Values padded to the size of keys, for kernels with one head size."""

import jax.numpy as jnp

from generator.language import requires, splice
from generator.language.roles import attend

requires("latent_attention")


@splice("Attention.attend_heads", optional=True)  # some layers may not attend
def _(q, k, v, context):
    size = v.shape[-1]
    v = jnp.pad(v, ((0, 0), (0, 0), (0, 0), (0, q.shape[-1] - size)))  # the kernel has one head size
    context = attend(q, k, v)[..., :size]  # [B, T, N, U]
