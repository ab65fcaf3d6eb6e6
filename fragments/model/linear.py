"""Linear maps."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import point, setting, splice
from generator.language.roles import product


class Config:
    init_std: float = 0.02  # standard deviation of the initial weights


class Linear(nnx.Module):
    """y = einsum(x, kernel): the kernel is kept in fp32 and used in the dtype of x.

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
        if setting("ordered_gradients"):
            y = product(self.equation, x, self.kernel.astype(x.dtype))
        else:
            y = jnp.einsum(self.equation, x, self.kernel.astype(x.dtype))
        point("Linear.output", x, y)
        return y


@splice("hf.sizes")
def _():
    yield "initializer_range", "init_std"
