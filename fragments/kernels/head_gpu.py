"""The output head for GPUs, with 16-bit gradients: XLA's would be in fp32, at half the speed."""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import splice


@jax.custom_gradient
def head_product(x: Array, kernel: Array) -> Array:
    """Computes logits [B, T, V] in fp32 from x [B, T, D] and kernel [D, V]; rounds their gradient to the dtype of x."""

    def backward(dy):
        dy = dy.astype(x.dtype)
        dkernel = jnp.einsum("BTD,BTV->DV", x, dy, preferred_element_type=kernel.dtype)
        return jnp.einsum("BTV,DV->BTD", dy, kernel.astype(x.dtype)), dkernel

    return jnp.einsum("BTD,DV->BTV", x, kernel.astype(x.dtype), preferred_element_type=jnp.float32), backward


@splice("Embedding.product")
def _(x, kernel, logits):
    logits = head_product(x, kernel)
