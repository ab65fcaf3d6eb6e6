"""Rows to other devices, as many as there are for each, where no collective sends that: with zeros in all other places.

Takes the memory and the bandwidth of so many rows for each device.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language.roles import RULES

Slices = tuple[Array, Array, Array]


def send_rows(rows: Array, size: int, away: Slices, home: Slices) -> Array:
    """Slices of rows [R, D] to the devices that experts lie over, and what these send here, [size, D], 0 where none.

    Args:
        away: where slices start here, how many rows each has, and where they start there: [devices, slices of each].
        home: the same of the slices that come here, as their way back.
    """
    starts, sizes, places = away
    order = jnp.argsort(starts, axis=None)  # of slices, in that of their rows
    which = jnp.repeat(order, sizes.ravel()[order], total_repeat_length=len(rows))  # the slice of each row
    row = jnp.arange(len(rows))
    place = jnp.where(row < sizes.sum(), places.ravel()[which] + row - starts.ravel()[which], size)
    slots = jnp.zeros_like(rows, shape=(len(sizes), size, rows.shape[1]))
    slots = slots.at[which // sizes.shape[1], place].set(rows, mode="drop")
    return jax.lax.psum_scatter(slots, RULES["expert"])  # a place gets a row from one device, zeros from the others
