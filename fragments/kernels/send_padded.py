"""Ragged all-to-all for backends without that collective, with the rows padded by zeros.

Takes the memory and bandwidth of `size` rows for each device.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language.roles import RULES

Slices = tuple[Array, Array, Array]


def send_rows(rows: Array, size: int, away: Slices, home: Slices) -> Array:
    """Sends slices of rows [R, D] to the devices of the expert axis; returns those received, [size, D], 0 in between.

    Args:
        away: starts of the slices here, their sizes, and their starts at the receiver: each [devices, slices].
        home: the same for the slices received here, on their way back.
    """
    starts, sizes, places = away
    order = jnp.argsort(starts, axis=None)  # slices in the order of their rows
    which = jnp.repeat(order, sizes.ravel()[order], total_repeat_length=len(rows))  # the slice of each row
    row = jnp.arange(len(rows))
    place = jnp.where(row < sizes.sum(), places.ravel()[which] + row - starts.ravel()[which], size)
    slots = jnp.zeros_like(rows, shape=(len(sizes), size, rows.shape[1]))
    slots = slots.at[which // sizes.shape[1], place].set(rows, mode="drop")
    return jax.lax.psum_scatter(slots, RULES["expert"])  # a row from one device, zeros from the others
