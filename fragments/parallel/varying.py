"""Mesh axes over which an array varies inside a shard_map, for functions that have gradients of their own."""

import jax
from jax import Array


def varying_as(y: Array, x: Array) -> Array:
    """Marks y as varying over the mesh axes over which x varies."""
    varying = jax.typeof(x).manual_axis_type.varying - jax.typeof(y).manual_axis_type.varying
    return jax.lax.pcast(y, tuple(varying), to="varying")
