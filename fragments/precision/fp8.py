"""Training with products in fp8, e4m3 forward and backward, scaled by the numbers at hand.

Source: Micikevicius et al. 2022, arXiv 2209.05433; e4m3 for gradients too: DeepSeek-AI 2024, arXiv 2412.19437.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import setting
from generator.language.roles import scaled_product

FORMAT = "fp8"
DEVICES = setting("fp8_devices")  # kinds of device that multiply in fp8; more letters may follow


def power_of_two(x: Array) -> Array:
    """Returns the next power of two above x in fp32: division by it keeps the bits of a number."""
    _, exponent = jnp.frexp(x)
    return jnp.ldexp(jnp.float32(1), exponent)


def scaled(x: Array, axes: tuple[int, ...], dtype: type) -> tuple[Array, Array]:
    """Returns x in fp8, divided by the scale of each slice along `axes`, and these scales."""
    largest = jnp.max(jnp.abs(x), axes, keepdims=True).astype(jnp.float32)
    scale = power_of_two(jnp.maximum(largest, 1e-30) / float(jnp.finfo(dtype).max))
    return (x / scale).astype(dtype), scale.squeeze(axes)


def low_precision_product(equation: str, x: Array, kernel: Array) -> Array:
    """Computes `product` of x in bf16 and all its gradients in fp8.

    Gradients are in e4m3 as well: with a scale for each slice they need its bits more than the range of e5m2.
    """
    inputs, weights, outputs = equation.replace("->", ",").split(",")
    fp8 = jnp.float8_e4m3fn

    @jax.custom_gradient
    def einsum(x, kernel):
        def gradients(dy):
            back = f"{outputs},{weights}->{inputs}", dy, kernel.astype(x.dtype)
            dkernel = scaled_product(f"{inputs},{outputs}->{weights}", x, dy, fp8, fp8, kernel.dtype)
            return scaled_product(*back, fp8, fp8, x.dtype), dkernel

        return scaled_product(equation, x, kernel.astype(x.dtype), fp8, fp8, x.dtype), gradients

    return einsum(x, kernel)
