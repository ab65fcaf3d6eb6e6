"""Keys and values of 8 bits, where an engine asks for it: each head of a token has a scale of its own.

Source: Dettmers et al. 2022, arXiv 2208.07339, section 2.1 (8 bits, with a scale for each vector).
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Int8Heads:
    """Vectors of 8 bits, in the place of an array of heads."""

    numbers: Array  # int8, [..., H]
    scale: Array  # fp32, [...]: of each vector

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    def __getitem__(self, places: object) -> "Int8Heads":
        return Int8Heads(self.numbers[places], self.scale[places])

    def astype(self, dtype: object) -> Array:
        """The vectors as a product takes them."""
        return (self.numbers * self.scale[..., None]).astype(dtype)


def heads_in_int8(heads: Array) -> Int8Heads:
    """The nearest of 255 numbers, of which the largest of each vector is the first or the last."""
    heads = heads.astype(jnp.float32)
    scale = jnp.maximum(jnp.abs(heads).max(axis=-1), 1e-30) / 127
    return Int8Heads(jnp.rint(heads / scale[..., None]).astype(jnp.int8), scale)
