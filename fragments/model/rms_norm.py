"""Root-mean-square norm.

Source: Zhang and Sennrich 2019, arXiv 1910.07467.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import point, splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    norm_epsilon: PositiveFloat = 1e-5  # added to the mean square


class Norm(nnx.Module):
    """Divides by the root mean square, in fp32, and scales."""

    def __init__(self, size: int, epsilon: float):
        with point("Norm.parameters", size):
            self.scale = nnx.Param(jnp.ones(size), axes=("norm",))
        self.epsilon = epsilon

    def __call__(self, x: Array) -> Array:
        y = x.astype(jnp.float32)
        point("Norm.centred", y)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon)
        with point("Norm.scaled", y):
            y = y * self.scale
        return y.astype(x.dtype)


@splice("hf.sizes")
def _():
    with point("hf.norm_epsilon"):
        yield "rms_norm_eps", "norm_epsilon"
