"""Expert parallelism with a capacity: tokens go to the devices of their experts; those beyond it are dropped.

Where train/expert_load exceeds capacity_factor, tokens are dropped: the expert adds nothing to their residual.

Source: Lepikhin et al. 2020, arXiv 2006.16668, section 2.2; Fedus et al. 2021, arXiv 2101.03961, section 2.2.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import point, requires, splice
from generator.language.roles import RULES, Experts, PositiveFloat, gather

requires("experts")


class ModelConfig:
    capacity_factor: PositiveFloat = 1.25  # capacity of an expert, as a multiple of its even share of a device's tokens


def dispatch(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """Computes `apply_experts` on one device, which has some of the experts: its partial sum, [1, B, T, D]."""
    B, T, D = x.shape
    expert = chosen.ravel()  # [B T A]: expert of each pair of a token and an expert
    mesh = jax.sharding.get_abstract_mesh()
    devices = 1
    if not mesh.empty:
        experts = gather(experts, ("expert_embed",), x.dtype)
        devices = mesh.shape["expert"]
    E = devices * experts.gate.kernel.shape[0]
    capacity = math.ceil(experts.capacity_factor * len(expert) / E)
    order = jnp.argsort(expert)
    sizes = jnp.bincount(expert, length=E)
    first = jnp.cumsum(sizes) - sizes  # first pair of each expert, in sorted order
    place = jnp.zeros_like(expert).at[order].set(jnp.arange(len(expert)) - first[expert[order]])

    pairs = jnp.arange(len(expert))
    with point("dispatch.rows", x, weights, pairs, D, B, E, T):
        rows = x.reshape(-1, D)[pairs // weights.shape[-1]]  # [B T A, D]
    slots = jnp.zeros((E, capacity, D), x.dtype).at[expert, place].set(rows, mode="drop")
    if devices > 1:  # to the devices of the experts, and back
        slots = jax.lax.all_to_all(slots, RULES["expert"], 0, 1, tiled=True)  # [E/devices, devices capacity, D]
    y = experts(slots)
    if devices > 1:
        y = jax.lax.all_to_all(y, RULES["expert"], 1, 0, tiled=True)  # [E, capacity, D]
    y = y.at[expert, place].get(mode="fill", fill_value=0).reshape(B, T, -1, D)
    with point("dispatch.sum", y, B, D, E, T):
        total = jnp.einsum("BTAD,BTA->BTD", y, weights.astype(x.dtype))[None]
    return total


@splice("Experts.parameters")
def _(self, config):
    self.capacity_factor = config.capacity_factor


def of_rows(values: Array, x: Array) -> Array:
    """Reshapes values [E, ...] to [E, 1, ...], which broadcast over each expert's rows of x [E, R, ...]."""
    return values[:, None]
