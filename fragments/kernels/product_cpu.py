"""Products with parameters for XLA's CPU backend."""

import jax
import jax.numpy as jnp
from jax import Array


def product(equation: str, x: Array, kernel: Array) -> Array:
    """jnp.einsum(equation, x, kernel), with the operands of the kernel's gradient in the faster order.

    XLA transposes the first of them and fuses into that what made it: a copy for x, all of silu's backward for dy.
    """
    inputs, weights, outputs = equation.replace("->", ",").split(",")

    @jax.custom_gradient
    def einsum(x, kernel):
        def backward(dy):
            dx = jnp.einsum(f"{outputs},{weights}->{inputs}", dy, kernel)
            return dx, jnp.einsum(f"{inputs},{outputs}->{weights}", x, dy)

        return jnp.einsum(equation, x, kernel), backward

    return einsum(x, kernel)
