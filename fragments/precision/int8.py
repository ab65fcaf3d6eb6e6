"""Training with products in int8: the forward pass and gradients of inputs; those of kernels stay in bf16.

Source: Wortsman et al. 2023, arXiv 2304.13013, section 2.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import setting
from generator.language.roles import scaled_product

FORMAT = "int8"
DEVICES = setting("int8_devices")  # kinds of device that multiply faster in int8; more letters may follow


def scaled(x: Array, axes: tuple[int, ...], dtype: type) -> tuple[Array, Array]:
    """Returns x in int8, divided by the scale of each slice along `axes`, and these scales."""
    largest = jnp.max(jnp.abs(x), axes, keepdims=True).astype(jnp.float32)
    scale = jnp.maximum(largest, 1e-30) / jnp.iinfo(dtype).max
    return jnp.round(x / scale).astype(dtype), scale.squeeze(axes)


def low_precision_product(equation: str, x: Array, kernel: Array) -> Array:
    """Computes `product` of x in bf16 and the gradient of x in int8.

    The gradient of the kernel stays in bf16: it sums over tokens, some of which are much larger than others.
    """
    inputs, weights, outputs = equation.replace("->", ",").split(",")

    @jax.custom_gradient
    def einsum(x, kernel):
        def gradients(dy):
            back = f"{outputs},{weights}->{inputs}", dy, kernel.astype(x.dtype)
            dkernel = jnp.einsum(f"{inputs},{outputs}->{weights}", x, dy, preferred_element_type=kernel.dtype)
            return scaled_product(*back, jnp.int8, jnp.int8, x.dtype), dkernel

        return scaled_product(equation, x, kernel.astype(x.dtype), jnp.int8, jnp.int8, x.dtype), gradients

    return einsum(x, kernel)
