"""KV cache in int8, if the engine asks for it, with a scale for each head of each token.

Source: Dettmers et al. 2022, arXiv 2208.07339, section 2.1 (int8 with a scale for each vector).
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import provide, requires, splice

requires("pages")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Int8Heads:
    """Vectors in int8, which stand in for an array of heads."""

    numbers: Array  # int8, [..., H]
    scale: Array  # fp32, [...]: of each vector

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    def __getitem__(self, places: object) -> "Int8Heads":
        return Int8Heads(self.numbers[places], self.scale[places])

    def astype(self, dtype: object) -> Array:
        """Returns the dequantized vectors."""
        return (self.numbers * self.scale[..., None]).astype(dtype)


def heads_in_int8(heads: Array) -> Int8Heads:
    """Quantizes heads [..., H] symmetrically: the largest absolute value of each vector becomes 127."""
    heads = heads.astype(jnp.float32)
    scale = jnp.maximum(jnp.abs(heads).max(axis=-1), 1e-30) / 127
    return Int8Heads(jnp.rint(heads / scale[..., None]).astype(jnp.int8), scale)


@splice("EngineSettings.fields")
def _():
    int8_kv_cache: bool = False  # KV cache in int8: half the memory and bandwidth of bfloat16


@provide("pages_that_fit")
def int8_kv_cache(settings) -> bool:
    return settings.int8_kv_cache


@provide("Device.__init__")
def int8_kv_cache(settings) -> bool:
    return settings.int8_kv_cache


@splice("empty_pages.format", optional=True)
def _(arrays, int8_kv_cache):
    if int8_kv_cache:
        arrays = tuple(Int8Heads(x.astype(jnp.int8), x[..., 0].astype(jnp.float32)) for x in arrays)


@splice("Attention.in_pages", after="attend_token", optional=True)
def _(cache, pages):
    if isinstance(pages.key, Int8Heads):
        cache = cache._replace(key=heads_in_int8(cache.key), value=heads_in_int8(cache.value))
