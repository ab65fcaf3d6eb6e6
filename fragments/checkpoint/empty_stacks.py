"""Checkpoints of models in which a stack may have no layers: Orbax writes no empty arrays."""

import jax.numpy as jnp

from generator.language import splice
from generator.language.roles import named_arrays


@splice("Checkpoints.save")
def _(arrays):
    arrays = {name: x for name, x in arrays.items() if x.size}  # Orbax writes no empty ones


@splice("Checkpoints.target")
def _(target):
    target = {name: x for name, x in target.items() if x.size}


@splice("Checkpoints.read")
def _(arrays, tree):
    empty = {n: jnp.zeros(x.shape, x.dtype, device=x.sharding) for n, x in named_arrays(tree).items() if not x.size}
    arrays = {n: (arrays | empty)[n] for n in named_arrays(tree)}
