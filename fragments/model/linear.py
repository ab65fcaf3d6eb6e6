"""Linear maps."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import point, setting, splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    init_std: PositiveFloat = 0.02  # standard deviation of the initial weights


def product(equation: str, x: Array, kernel: Array, dtype: str | None = None) -> Array:
    """Computes jnp.einsum(equation, x, kernel) in the dtype of x, and returns it in `dtype`, by default that of x.

    Sums the kernel's gradient over tokens and devices in the kernel's dtype; einsum's own would be in the dtype of x.
    """
    if setting("products_in_fp32"):
        equation = equation.replace("H", "U")  # einsum sorts contracted letters: XLA would copy a kernel [N, H] to H, N
    inputs, weights, outputs = equation.replace("->", ",").split(",")

    @jax.custom_gradient
    def einsum(x, kernel):
        def backward(dy):
            if setting("products_in_fp32"):
                dy = dy.astype(x.dtype)
                sums = jnp.float32
                dx = jnp.einsum(
                    f"{outputs},{weights}->{inputs}", dy, kernel.astype(x.dtype), preferred_element_type=sums
                )
                dx = dx.astype(x.dtype)
            else:
                dx = jnp.einsum(f"{outputs},{weights}->{inputs}", dy, kernel.astype(x.dtype)).astype(x.dtype)
            return dx, jnp.einsum(f"{inputs},{outputs}->{weights}", x, dy, preferred_element_type=kernel.dtype)

        if setting("products_in_fp32"):
            with point("product.forward", x, kernel, inputs, weights, outputs):
                y = jnp.einsum(equation, x, kernel.astype(x.dtype), preferred_element_type=jnp.float32)
            return y.astype(dtype or x.dtype), backward
        else:
            return jnp.einsum(equation, x, kernel.astype(x.dtype), preferred_element_type=dtype), backward

    with point("product.result", equation, x, kernel, dtype):
        y = einsum(x, kernel)
    return y


def add_bias(y: Array, bias: Array) -> Array:
    """Adds a bias in the dtype of y, cast after the broadcast: its gradient is summed in its own dtype."""
    return y + jnp.broadcast_to(bias, y.shape).astype(y.dtype)


class Linear(nnx.Module):
    """Computes y = einsum(x, kernel); the kernel is stored in fp32 and used in the dtype of x.

    Args:
        equation: of jnp.einsum, from x and the kernel to y.
        shape, axes: sizes and logical axes of the kernel.
        std: standard deviation of the initial weights.
    """

    def __init__(self, equation: str, shape: tuple[int, ...], axes: tuple[str, ...], std: float, rngs: nnx.Rngs):
        self.equation = equation
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), shape), axes=axes)
        point("Linear.parameters", equation, shape, axes)

    def __call__(self, x: Array) -> Array:
        with point("Linear.output", x):
            with point("Linear.product", x):
                y = product(self.equation, x, self.kernel.get_value())
        return y


@splice("hf.sizes")
def _():
    yield "initializer_range", "init_std"
